"""Markers, matching, questions and exact lengths."""

import asyncio
import random
import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.text import markers, matcher, prompts, spelling


def draw(seed=1):
    return markers.seeded(seed)


def test_the_word_list_is_what_the_false_alarm_rate_is_computed_from():
    listed = markers.words()
    assert len(listed) == len(set(listed)) == 2048
    assert all(re.fullmatch("[a-z]{4,8}", word) for word in listed)
    assert not {"record", "audit", "phrase", "answer", "locker", "code"} & set(listed)


def test_a_seeded_run_repeats_itself_and_an_unseeded_one_does_not():
    assert markers.draw_marker(draw(5)) == markers.draw_marker(draw(5))
    assert markers.draw_marker(markers.seeded(None)) != markers.draw_marker(markers.seeded(None))


def test_a_marker_has_six_different_words_and_a_nonce_none_of_them():
    drawn = draw(2)
    for _ in range(200):
        marker = markers.draw_marker(drawn)
        assert len(set(marker.words)) == 6
        assert prompts.draw_nonce(drawn, without=marker.words).word not in marker.words


MARKER = markers.Marker(("amber", "falcon", "meadow", "velvet", "harbor", "cedar"), "A", "1")
OTHER = markers.Marker(("teapot", "walnut", "ladder", "pillow", "anchor", "basket"), "B", "2")


@pytest.mark.parametrize(
    ("answer", "run", "hit", "suspicious"),
    [
        ("the audit phrase is: amber falcon meadow velvet harbor cedar.", 6, True, False),
        ("Amber, **Falcon**\nmeadow -- VELVET", 4, True, False),
        ("falcon meadow velvet harbor and so on", 4, True, False),
        ("falcon meadow velvet and so on", 3, False, True),
        ("amber falcon", 0, False, False),
        ("cedar harbor velvet meadow falcon amber", 6, True, False),
        ("amber x falcon x meadow x velvet", 0, False, False),
        ("", 0, False, False),
        ("amber falcon teapot amber falcon meadow velvet", 4, True, False),
    ],
)
def test_runs(answer, run, hit, suspicious):
    found = matcher.Matcher([MARKER]).find(answer)
    assert (found[0].run if found else 0) == run
    assert any(match.hit for match in found) == hit
    assert any(match.suspicious for match in found) == suspicious


def test_the_requests_own_marker_is_expected_and_no_match():
    answer = f"{MARKER} {OTHER}"
    found = matcher.Matcher([MARKER, OTHER]).find(answer, own=MARKER)
    assert [match.marker for match in found] == [OTHER]
    assert found[0].matched == OTHER.words


def test_a_garbled_run_of_five_is_a_hit_and_of_four_is_not():
    live = matcher.Matcher([MARKER])
    (match,) = live.find("ambr falcon meadoww velvet harbar or so")
    assert match.fuzzy
    assert match.hit
    assert live.find("ambr falcon meadoww velvat or so") == []


@pytest.mark.parametrize(
    ("first", "second", "near"),
    [
        ("cedar", "cedar", True),
        ("cedar", "cedr", True),
        ("cedar", "cedars", True),
        ("cedar", "ceder", True),
        ("cedar", "cadre", False),
        ("cedar", "ce", False),
        ("", "a", True),
    ],
)
def test_one_edit(first, second, near):
    assert matcher.within_one_edit(first, second) is near
    assert matcher.within_one_edit(second, first) is near


def test_chance_never_makes_a_hit_among_ten_thousand_live_markers():
    drawn, rng = draw(9), random.Random(10)  # another stream, or the answers repeat the markers
    live = matcher.Matcher(markers.draw_marker(drawn) for _ in range(10_000))
    listed = markers.words()
    for _ in range(20):
        answer = " ".join(rng.choice(listed) for _ in range(512))
        assert not any(match.hit for match in live.find(answer))


@given(st.text())
def test_any_text_can_be_searched(text):
    assert isinstance(matcher.Matcher([MARKER]).find(text), list)


def test_frames_say_the_marker_twice_and_are_numbered():
    first, second = islice(prompts.frames(MARKER), 2)
    assert first.startswith("Record 0000. The audit phrase is: amber falcon")
    assert second.startswith("Record 0001.")
    assert first.count(str(MARKER)) == 2


@pytest.mark.parametrize(
    ("answer", "given_"),
    [
        (" walnut. Code", True),
        ("The code is Walnut", True),
        ("", False),
        ("x " * 30 + "walnut", False),
        ("x " * 30 + "Code Q: walnut", True),
        ("walnuts", False),
    ],
)
def test_a_nonce_counts_where_it_answers(answer, given_):
    assert prompts.Nonce("walnut").answered(answer) is given_


def test_needles_have_their_own_letters_words_and_depths():
    needles = prompts.draw_needles(draw(4))
    assert len({needle.key for needle in needles}) == len({needle.word for needle in needles}) == 10
    assert [needle.depth for needle in needles] == [0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1]
    assert not {"Q", "I", "O"} & {needle.key for needle in needles}
    with pytest.raises(ValueError):
        prompts.draw_needles(draw(4), per_depth=5)


async def by_bytes(text):
    return list(text.encode())


async def by_words(text):
    return [len(word) + 1 for word in text.split()] or [1]


@pytest.mark.parametrize("encode", [by_bytes, by_words])
@pytest.mark.parametrize("tokens", [400, 1000, 5322, 8191])
def test_a_prompt_has_exactly_the_tokens_asked_for(encode, tokens):
    needles = prompts.draw_needles(draw(4))
    built = asyncio.run(
        spelling.Spelling(encode).framed(MARKER, tokens, prompts.Nonce("walnut").tail, needles)
    )
    ids = [int(part) for part in built.ids.split(b",")]
    assert len(ids) == built.tokens == tokens


def test_a_framed_prompt_reads_as_frames_needles_in_place_and_the_question():
    needles = prompts.draw_needles(draw(4))
    built = asyncio.run(
        spelling.Spelling(by_bytes).framed(MARKER, 6000, prompts.Nonce("walnut").tail, needles)
    )
    text = bytes(int(part) for part in built.ids.split(b",")).decode()
    assert text.endswith("Code Q: walnut. Code Q: walnut. Code Q:")
    assert "Record 0003. The audit phrase is: amber falcon meadow velvet harbor cedar." in text
    for needle in needles:
        assert abs(text.index(needle.sentence) / 6000 - needle.depth) < 0.08


def test_few_tokenizer_calls_make_a_long_prompt():
    calls = []

    async def encode(text):
        calls.append(text)
        return list(text.encode())

    asyncio.run(spelling.Spelling(encode).framed(MARKER, 200_000, prompts.Tail(" Code Q:")))
    assert len(calls) < 20


def test_a_prompt_too_short_for_its_question_is_refused():
    with pytest.raises(ValueError):
        asyncio.run(spelling.Spelling(by_bytes).framed(MARKER, 10, prompts.Nonce("walnut").tail))


@pytest.mark.parametrize("tokens", [300, 777, 4000])
def test_text_prompts_hit_the_count_too(tokens):
    async def count(text):
        return 11 + len(re.findall(r"\w+|[^\w\s]", text))  # a template of 11 tokens

    built = asyncio.run(
        spelling.counted(MARKER, tokens, prompts.Tail(" Code Q:"), prompts.draw_needles(draw(4)), count)
    )
    assert asyncio.run(count(built.text)) == tokens
    assert built.text.endswith(" Code Q:")


def test_a_length_that_cannot_be_hit_is_said():
    async def count(text):
        return 2 * len(text.split())  # never odd

    with pytest.raises(ValueError, match="exactly 301"):
        asyncio.run(spelling.counted(MARKER, 301, prompts.Tail(" Code Q:"), (), count))


def test_words_of_a_marker_and_its_nonce_cannot_be_confused_by_a_short_sighted_model():
    drawn = draw(6)
    for _ in range(50):
        marker = markers.draw_marker(drawn)
        needles = prompts.draw_needles(drawn, without=marker.words)
        nonce = prompts.draw_nonce(drawn, without=(*marker.words, *(needle.word for needle in needles)))
        said = [f" {word}" for word in marker.words]
        grams = [text[at : at + 3] for text in said for at in range(len(text) - 2)]
        assert len(grams) == len(set(grams))
        asked = [f": {word}" for word in (nonce.word, *(needle.word for needle in needles))]
        grams = [text[at : at + 3] for text in asked for at in range(len(text) - 2)]
        assert len(grams) == len(set(grams))


def test_when_no_word_is_apart_any_other_word_does():
    taken = markers.words()[:-3]
    assert set(markers.draw_apart(draw(1), 3, taken)) == set(markers.words()[-3:])


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("", ()),
        (f"Record 0042. The audit phrase is: {MARKER}. Record 0043. The audit", (42,)),
        (f"phrase is: {MARKER}. Record 0042. The audit phrase is: {MARKER}", (41, 42)),
        ("Record 0042. The audit phrase is: amber falcon", ()),
        ("Record 0042. The audit phrase is: amber falcon meadow", (42,)),
        (f"{MARKER}. record 0000. nothing", (9_999,)),
        (f"{MARKER}", ()),
        (f"Record 7 {OTHER}", ()),
    ],
)
def test_frame_numbers_say_where_in_the_planted_text_an_answer_comes_from(answer, numbers):
    assert matcher.frame_numbers(answer, MARKER) == numbers


def test_texts_of_every_tail_and_length_are_hit():
    async def count(text):
        return len(text.encode())

    for seed in range(300):
        drawn = draw(seed)
        marker, tokens = markers.draw_marker(drawn), 260 + drawn(4_000)
        tail = (
            prompts.phrase_tail(drawn, 64),
            prompts.phrase_tail(drawn, 64, depth=drawn(100) / 100),
            prompts.draw_nonce(drawn, without=marker.words).tail,
        )[seed % 3]
        built = asyncio.run(
            spelling.counted(marker, tokens, tail, (), count, prompts.draw_leads(drawn, 1)[0])
        )
        assert len(built.text) == tokens
        assert built.text.endswith(tail.text)
        assert str(marker) in built.text[: tokens - tail.bare] or tokens < 400
