"""Shows text that others wrote (engines, operators, file uploads) without letting it act on a page.

Besides HTML escaping, which Django does, two things can deceive a reader: characters that are
invisible or reorder their neighbours (control characters, bidirectional overrides, zero-width
marks), and length. The first are spelled out, the second folds into a details element.

What is put into a SafeString here, in `marks`, `standing_marks` and `moments` is escaped, a constant or a number.
Django's `mark_safe` and `conditional_escape` also know lazy texts and objects with HTML of their own; that costs more
than the rest of it, and pages have hundreds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from html import escape

from django.utils.html import format_html
from django.utils.safestring import SafeString

FOLD_AT = 300
"""Characters shown before the rest folds away."""

LONGEST_WORD = 36
"""Characters without a space that a column holds; digests and addresses are longer."""

LONGEST = 200_000
"""Characters that a page carries at most, folded or not."""

_ACTING_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_HARMLESS = frozenset("\n\t")


def acts(character: str) -> bool:
    """Whether a character must be spelled out: it has no shape of its own or moves its neighbours."""
    return character not in _HARMLESS and unicodedata.category(character) in _ACTING_CATEGORIES


def spelled(value: object) -> SafeString:
    """Escaped HTML in which every acting character reads ``U+202E`` in a marked span."""
    text = str(value)[:LONGEST]
    if text.isprintable():  # nothing in it acts: the common case, without a look at each character
        return SafeString(escape(text))
    return SafeString("".join(_pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    plain_from = 0
    for position, character in enumerate(text):
        if acts(character):
            yield escape(text[plain_from:position])
            yield f'<span class="ctrl">U+{ord(character):04X}</span>'
            plain_from = position + 1
    yield escape(text[plain_from:])


def _isolated(shown: SafeString, text: str) -> SafeString:
    """In a bdi element, so that it cannot turn its surroundings; a word longer than a column may break
    anywhere."""
    long = len(text) > LONGEST_WORD and any(len(word) > LONGEST_WORD for word in text.split())
    unbroken = ' class="unbroken"' if long else ""
    return SafeString(f"<bdi{unbroken}>{shown}</bdi>")


def escaped(value: object) -> str:
    """For markup written by hand; what is marked as safe stays as it is."""
    return value if isinstance(value, SafeString) else escape(str(value))


def inline(value: object, limit: int = FOLD_AT) -> SafeString:
    """For headings, links and sentences: isolated, spelled out, cut at ``limit`` with the count said."""
    text = str(value)
    if len(text) <= limit:
        return _isolated(spelled(text), text)
    cut = text[:limit]
    return format_html(
        '{}<span class="soft">… ({} characters)</span>', _isolated(spelled(cut), cut), f"{len(text):,}"
    )


def block(value: object, limit: int = FOLD_AT) -> SafeString:
    """For table cells and definition lists: like `inline`, but the whole text opens on demand.

    Not for use inside a paragraph: a details element would close it.
    """
    text = str(value)
    if len(text) <= limit:
        return inline(text, limit)
    return format_html(
        "<details><summary>{}… ({} characters)</summary>{}</details>",
        _isolated(spelled(text[: limit // 2]), text),
        f"{len(text):,}",
        _isolated(spelled(text), text),
    )


def plain(value: object, limit: int = FOLD_AT) -> str:
    """For attributes and page titles, which hold no markup: acting characters become ``[U+202E]``."""
    text = str(value)
    shown = "".join(f"[U+{ord(c):04X}]" if acts(c) else c for c in text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def few(names: Sequence[str]) -> str:
    """``pool, version, drift and 5 more``: names in a sentence, not escaped."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def query_text(value: str | None, limit: int = 200) -> str:
    """A search term out of a URL: without NUL (PostgreSQL refuses it) and other control characters."""
    return "".join(c for c in (value or "")[:limit] if not acts(c)).strip()
