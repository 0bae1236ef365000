"""Verdict marks: word + shape + colour. A mark is small and frequent, so it is built in Python.

The shapes differ without colour: a disc with a tick, an octagon with a cross, a hatched square
with a question mark, a triangle with an exclamation mark, and a dashed ring where nothing was concluded.
"""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from kvaudit.verdict import Verdict

_SHAPES: dict[str, str] = {
    "pass": '<circle class="fill" cx="8" cy="8" r="7"/><path class="glyph" d="M4.8 8.3l2.3 2.3 4.2-4.8"/>',
    "fail": '<path class="fill" d="M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z"/>'
    '<path class="glyph" d="M5.5 5.5l5 5m0-5l-5 5"/>',
    # The pattern lives once in base.html; a stylesheet cannot refer to it, an attribute can.
    "inconclusive": '<rect x="1.2" y="1.2" width="13.6" height="13.6" rx="2" fill="url(#hatch-unsure)"'
    ' stroke="currentColor" stroke-width="1.4"/>'
    '<path class="line" d="M6 6.2a2 2 0 1 1 2.9 1.8c-.6.3-.9.7-.9 1.3"/><path class="line" d="M8 11.8v.1"/>',
    "error": '<path class="fill" d="M8 1.2l7.2 13.3H.8z"/>'
    '<path class="glyph" d="M8 6v4"/><path class="glyph" d="M8 12.3v.1"/>',
    "none": '<circle class="open" cx="8" cy="8" r="6.5"/>',
}

NOT_RUN = "none"


def kind(value: object) -> str:
    """The style name of a verdict: one of the four, or ``none`` for no verdict at all.

    Anything else that is unreadable is an error, as everywhere (`Verdict.parse`).
    """
    if value is None or value == "" or value == NOT_RUN:
        return NOT_RUN
    return Verdict.parse(value).value


def icon(value: object) -> SafeString:
    """The bare shape, hidden from screen readers: a word always stands beside it."""
    shape = _SHAPES[kind(value)]
    return mark_safe(  # noqa: S308 - constants of this module
        f'<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">{shape}</svg>'
    )


def shape(value: object) -> SafeString:
    """The shape in its colour, for a sentence that says the verdict itself."""
    return format_html('<span class="verdict verdict-{}">{}</span>', kind(value), icon(value))


def mark(value: object, word: str = "") -> SafeString:
    """Shape and word; ``word`` replaces the verdict's own ("not run" where there is none)."""
    name = kind(value)
    shown = word or ("not run" if name == NOT_RUN else name)
    return format_html('<span class="verdict verdict-{}">{}{}</span>', name, icon(name), shown)


def numbered(value: object, label: str, below: str, said: str) -> SafeString:
    """A mark of a row of marks: ``label`` above, ``below`` under it; ``said`` for screen readers
    and as title."""
    name = kind(value)
    return format_html(
        '<li title="{}"><span aria-hidden="true">{}</span><span class="verdict verdict-{}">{}</span>'
        '<span aria-hidden="true">{}</span><span class="vh">{}</span></li>',
        said,
        label,
        name,
        icon(name),
        below,
        said,
    )
