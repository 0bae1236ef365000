"""Marks of checklist items: the four verdicts, and by attestation, by waiver, not applicable. Each is
word + shape + colour; the shapes are in kit/item_shapes.html."""

from __future__ import annotations

from functools import cache

from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.web.kit.untrusted import escaped

NAMES = {status: status.value.replace(" ", "-") for status in Status}
"""Style names: pass, attested, waived, not-applicable, inconclusive, error, fail."""
WORDS = {**{status: status.value for status in Status}, Status.NOT_APPLICABLE: "n/a"}


@cache
def shape(status: Status) -> SafeString:
    return format_html(
        '<svg width="16" height="16" aria-hidden="true"><use href="#shape-{}"/></svg>', NAMES[status]
    )


def mark(status: Status, word: str = "") -> SafeString:
    """Shape and word."""
    return SafeString(
        f'<span class="verdict verdict-{NAMES[status]}">{shape(status)}{escaped(word or WORDS[status])}</span>'
    )
