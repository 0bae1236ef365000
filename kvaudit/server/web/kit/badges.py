"""Builds verdict marks: word + shape + colour. A mark is small and frequent, so it is built in Python.

The shapes differ without colour: a disc with a tick, an octagon with a cross, a hatched square
with a question mark, a triangle with an exclamation mark, and a dashed ring where nothing was concluded.
"""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Run, RunState
from kvaudit.server.audits.state.tiers import Tier
from kvaudit.server.web.kit.untrusted import escaped

NOT_RUN = "none"


def kind(value: object) -> str:
    """The style name of a verdict: one of the four, or ``none`` for no verdict at all.

    Anything else that is unreadable is an error, as everywhere (`Verdict.parse`).
    """
    if value is None or value == "" or value == NOT_RUN:
        return NOT_RUN
    return Verdict.parse(value).value


_ICONS = {
    name: SafeString(f'<svg width="16" height="16" aria-hidden="true"><use href="#shape-{name}"/></svg>')
    for name in (*(verdict.value for verdict in Verdict), NOT_RUN)
}


def icon(value: object) -> SafeString:
    """The bare shape, hidden from screen readers: a word always stands beside it.

    The shapes themselves are drawn once a page, in kit/shapes.html.
    """
    return _ICONS[kind(value)]


def shape(value: object) -> SafeString:
    """The shape in its colour, for a sentence that says the verdict itself."""
    return format_html('<span class="verdict verdict-{}">{}</span>', kind(value), icon(value))


def mark(value: object, word: str = "") -> SafeString:
    """Shape and word; ``word`` replaces the verdict's own ("not run" where there is none)."""
    name = kind(value)
    shown = word or ("not run" if name == NOT_RUN else name)
    return SafeString(f'<span class="verdict verdict-{name}">{_ICONS[name]}{escaped(shown)}</span>')


KIND_OF_TIER = {
    Tier.LEAK: "fail",
    Tier.UNSAFE: "unsafe",
    Tier.NOT_VERIFIED: "inconclusive",
    Tier.OK: "pass",
}
"""Style name of a tier: of its shape, its colour and the headline of a page."""


def of_tier(tier: Tier) -> SafeString:
    """A deployment's status: shape and word."""
    return _TIERS[tier]


_TIERS = {
    tier: format_html(
        '<span class="verdict verdict-{0} tier-{1}"><svg width="16" height="16" aria-hidden="true">'
        '<use href="#shape-{0}"/></svg>{2}</span>',
        name,
        tier.value,
        tier.label,
    )
    for tier, name in KIND_OF_TIER.items()
}


def of_run(run: Run) -> SafeString:
    """How a run ended, or that it has not. A cancelled one says so: its verdict is that of what is missing; but a fail
    that it found stands."""
    if run.state != RunState.CANCELLED:
        return mark(run.verdict) if run.verdict else mark("", run.state)
    if Verdict.parse(run.verdict or "") is Verdict.FAIL:
        return format_html('{} <span class="tag">cancelled</span>', mark(run.verdict))
    return mark("", "cancelled")
