"""A marker is found however it is written, and what cannot be found is known."""

from __future__ import annotations

import base64

import pytest

from kvaudit.auditor.text.markers import Marker, draw_marker, draw_words, seeded
from kvaudit.auditor.text.matcher import Matcher

WORDS = ("parlour", "ember", "sealskin", "blazer", "calamine", "cinder")
MARKER, OWN = Marker(WORDS), Marker(("garden", "harbor", "island", "jacket", "kettle", "ladder"))
SAID = " ".join(WORDS)

FOUND = {
    "as it is": SAID,
    "capitals": SAID.title(),
    "markdown": "**" + "** **".join(WORDS) + "**",
    "as a list": "\n".join(f"{chr(97 + at)}) {word}" for at, word in enumerate(WORDS)),
    "without blanks": "".join(WORDS),
    "camel case": "".join(word.title() for word in WORDS),
    "letter by letter": " ".join("".join(WORDS)),
    "cut by a tokenizer": " ".join(f"{word[:3]} {word[3:]}" for word in WORDS),
    "plural": " ".join(f"{word}s" for word in WORDS),
    "backwards": " ".join(reversed(WORDS)),
    "in any order": " ".join(WORDS[at] for at in (3, 0, 5, 1, 4, 2)),
    "mixed with another row": " ".join(
        f"{theirs} {own}" for theirs, own in zip(WORDS, OWN.words, strict=True)
    ),
    "each with its key": " ".join(f"word number: {word};" for word in WORDS),
    "one lost": " ".join((*WORDS[:3], *WORDS[4:])),
    "each twice": " ".join(f"{word} {word}" for word in WORDS),
    "invisible characters": " ".join(f"{word[:2]}\u200b{word[2:]}" for word in WORDS),
    "soft hyphens": " ".join(f"{word[:3]}\u00ad{word[3:]}" for word in WORDS),
    "wide": SAID.translate({letter: letter + 0xFEE0 for letter in range(97, 123)}),
    "accents": SAID.replace("a", "\u00e1").replace("e", "\u00e9"),
    "marks of a vocabulary": "".join(f"\u0120{word}" for word in WORDS),
}

NOT_FOUND = {
    "encoded": base64.b64encode(SAID.encode()).decode(),
    "initials": " ".join(word[0] for word in WORDS),
    "translated": "Salon Glut Seehundsfell Jacke Galmei Schlacke",
    "two words": "parlour ember",
    "four words in any order": "cinder parlour calamine ember",
    "five words, far apart": " and so it went on for a long while ".join(WORDS[:5]),
}


@pytest.mark.parametrize("how", FOUND)
def test_found(how: str) -> None:
    matches = Matcher([MARKER, OWN]).find(f"Here it is: {FOUND[how]} and so on.", own=OWN)
    assert [(match.marker, match.hit) for match in matches if match.hit] == [(MARKER, True)]
    assert set(matches[0].matched) <= set(WORDS)
    assert Matcher([MARKER]).find(FOUND[how], own=MARKER) == []


@pytest.mark.parametrize("how", NOT_FOUND)
def test_not_found(how: str) -> None:
    assert not any(match.hit for match in Matcher([MARKER]).find(NOT_FOUND[how]))


def test_three_words_stay_a_suspicion() -> None:
    (match,) = Matcher([MARKER]).find("parlour ember sealskin")
    assert (match.suspicious, match.hit) == (True, False)


def test_words_of_our_own_list_are_no_hit_among_thousands_of_markers() -> None:
    """What a model says that copies a shared beginning of 256 words, or draws lots."""
    draw = seeded(3)
    matcher = Matcher(draw_marker(draw) for _ in range(3_000))
    for _ in range(30):
        said = " ".join(draw_words(draw, 250))
        assert not any(match.hit for match in matcher.find(said))
        assert not any(match.hit for match in matcher.find(said.replace(" ", "")))
