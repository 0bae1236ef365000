"""Marks of checklist items: the four verdicts, and by attestation, by waiver, not applicable. Each is
word + shape + colour; the shapes are in compliance/shapes.html."""

from __future__ import annotations

from datetime import datetime

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from kvaudit.checklists.standing import Cell, Status
from kvaudit.web import moments

NAMES = {status: status.value.replace(" ", "-") for status in Status}
"""Style names: pass, attested, waived, not-applicable, inconclusive, error, fail."""
WORDS = {**{status: status.value for status in Status}, Status.NOT_APPLICABLE: "n/a"}
LONG = {
    Status.PASS: "passed by its checks",
    Status.ATTESTED: "by attestation",
    Status.WAIVED: "by waiver",
    Status.NOT_APPLICABLE: "not applicable",
    Status.INCONCLUSIVE: "inconclusive: not known",
    Status.ERROR: "error: could not be audited",
    Status.FAIL: "fail",
}


def shape(status: Status) -> SafeString:
    return format_html(
        '<svg width="16" height="16" aria-hidden="true"><use href="#shape-{}"/></svg>', NAMES[status]
    )


def mark(status: Status, word: str = "") -> SafeString:
    """Shape and word."""
    return format_html(
        '<span class="verdict verdict-{}">{}{}</span>', NAMES[status], shape(status), word or WORDS[status]
    )


def cell(cell: Cell, label: str, href: str, now: datetime) -> SafeString:
    """One cell of the matrix, linked to its evidence. Built by hand: a page has more than a thousand."""
    status = cell.status
    name = NAMES[status]
    said = f"{label}: {LONG[status]}; {cell.reason}"
    extra = ""
    if cell.warn and status is Status.PASS:
        extra = '<span class="warn">warning</span>'
    elif cell.leak and cell.waiver is not None:
        extra = '<span class="warn">not waivable</span>'
    age = moments.brief(now - cell.since)
    return mark_safe(  # noqa: S308 - every part is escaped or a constant
        f'<td data-label="{conditional_escape(label)}"><a class="cell" href="{conditional_escape(href)}" '
        f'title="{conditional_escape(said)}">'
        f'<span class="verdict verdict-{name}"><svg width="16" height="16" aria-hidden="true">'
        f'<use href="#shape-{name}"/></svg><span class="word">{WORDS[status]}</span></span>'
        f'<span class="soft">{age}</span></a>{extra}</td>'
    )
