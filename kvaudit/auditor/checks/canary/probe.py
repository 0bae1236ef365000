"""Plants markers as one tenant and searches every answer for those of others, at lengths, ways to ask and tenants
that are drawn. What the check is for: `kvaudit.auditor.checks.canary`."""

from __future__ import annotations

from kvaudit.auditor.checks.canary import CHECK
from kvaudit.auditor.checks.canary.asking import Cell
from kvaudit.auditor.checks.canary.counting import may_fill, pools_to_fill
from kvaudit.auditor.checks.canary.design import Round, lay_out
from kvaudit.auditor.checks.canary.seen import CanarySeen
from kvaudit.auditor.checks.canary.sender import (
    CONTROL_TOKENS,
    CONTROLS_EACH,
    CanarySender,
    cells,
)
from kvaudit.auditor.checks.canary.strata import DrawnLength, Span, draw_lengths
from kvaudit.auditor.checks.canary.verdict import judge_canary
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Plan, Prober, Stop
from kvaudit.auditor.checks.serving import PRODUCTION
from kvaudit.auditor.checks.trials import PHRASE_ROOM, unaskable, withheld
from kvaudit.auditor.text.markers import seeded
from kvaudit.auditor.verdict import Result

NIGHTS = 4
"""Drawn for a price."""

OVERHEAD = 4096
"""Tokens of health requests."""

FOLLOWING_UP = 0.03
"""Share of a ceiling that is kept for what follows up misses: a run that ends before its rounds do is no pass."""


class CanaryProbe:
    """Plants markers as one tenant and reads the answers of the others."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """Requests and expected accepted prompt tokens of the planned rounds and the surfacing controls."""
        span = span_of(prober)
        controls = CONTROLS_EACH * len(prober.modes)
        if span is None:
            return Plan(controls, controls * CONTROL_TOKENS, float(controls))
        rounds = _rounds(prober, span)
        nights = [draw_lengths(seeded(night), rounds, span) for night in range(NIGHTS)]
        order = [cell for length in nights[0] for cell in _order(prober, length, span)]
        tokens = sum(_cost(prober, length, span) for night in nights for length in night) // NIGHTS
        return Plan(
            len(order) + controls,
            tokens + controls * CONTROL_TOKENS + _filling(prober),
            float(len(order)),
            rounds,
            f"lengths are drawn from {span.shortest:,} to {span.top:,} tokens"
            + (", each prompt the victim of the next" if _chained(span) else ""),
        )

    async def observe(self, audit: Audit) -> CanarySeen:
        """Send the planned rounds and replays; stops at the first verified hit, and where harm is seen."""
        prober = audit.prober
        if prober is None:
            return CanarySeen(None, unaskable="two tenants' keys")
        seen = CanarySeen(prober.limits, prober.tenants, untested=prober.untested, scope=prober.scope)
        if len(prober.tenants) < 2:
            seen.unaskable = "a second tenant's key"
            return seen
        seen.withheld = withheld(prober.limits, prober.consent)
        span = span_of(prober)
        if span is None:
            seen.stopped = "The limit of this target is unknown, so no boundary length can be chosen."
            return seen
        planned = _drawn(prober, span)
        seen.planned = len(planned)
        orders = [_order(prober, each.length, span) for each in planned]
        seen.planned_trials = CONTROLS_EACH * len(prober.modes) + sum(
            not cell.above for order in orders for cell in order
        )
        sender = CanarySender(prober, seen)
        try:
            await sender.surfacing()
            await sender.fill()
            await sender.rounds(planned)
            await sender.replay(audit.replayed, planned)
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: CanarySeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, seen.unaskable)
        return judge_canary(seen)


def span_of(prober: Prober) -> Span | None:
    """The lengths that a round's request may have; None where the limit is unknown. Those beyond the longest safe one
    only where consent covers them."""
    limits = prober.limits
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None or longest < 1:
        return None
    qualifying = prober.serving.where != PRODUCTION
    if limits.dangerous and not prober.consent:
        return Span(longest, longest, longest, limits.page, limits.sizes, prober.most_added, qualifying)
    roomy = n - 1 - (PHRASE_ROOM - prober.room(n - 1, PHRASE_ROOM))
    if prober.room(roomy, PHRASE_ROOM) < PHRASE_ROOM:
        roomy = longest
    return Span(longest, max(longest, roomy), n - 1, limits.page, limits.sizes, prober.most_added, qualifying)


def _drawn(prober: Prober, span: Span) -> list[Round]:
    """The rounds of a run, fixed before it: what was planned, or the first of them that the ceiling allows where
    longer lengths were drawn than expected."""
    lengths = draw_lengths(prober.draw, _rounds(prober, span), span)
    left = _left(prober)
    while left is not None and lengths and sum(_cost(prober, length, span) for length in lengths) > left:
        lengths.pop(0 if _chained(span) else -1)
    return lay_out(
        prober.draw,
        lengths,
        prober.modes,
        prober.tenants,
        prober.idle_allowance,
        chained=_chained(span),
        qualifying=span.qualifying,
    )


def _rounds(prober: Prober, span: Span) -> int:
    """As many as the ceiling allows beside the controls."""
    left, lengths = _left(prober), draw_lengths(seeded(0), span.planned, span)
    if left is None:
        return span.planned
    if _chained(span):
        while lengths and sum(_cost(prober, length, span) for length in lengths) > left:
            lengths.pop(0)
        return len(lengths)
    each = sum(_cost(prober, length, span) for length in lengths) / max(1, len(lengths))
    return max(0, min(span.planned, int(left / each)))


def _left(prober: Prober) -> int | None:
    """Prompt tokens for rounds, beside the controls and one request more (a refused one must fit the budget as well
    until it is refused); None = no ceiling."""
    if prober.rounds_ceiling is None:
        return None
    controls = CONTROLS_EACH * len(prober.modes) * CONTROL_TOKENS + _filling(prober)
    kept = OVERHEAD + int(FOLLOWING_UP * prober.rounds_ceiling)
    return prober.rounds_ceiling - controls - kept - (prober.limits.context or 0) - 1


def _filling(prober: Prober) -> int:
    """Tokens that are served before the rounds."""
    return pools_to_fill(prober) if may_fill(prober) else 0


def _chained(span: Span) -> bool:
    return span.chained and not span.qualifying


def _order(prober: Prober, length: DrawnLength, span: Span) -> tuple[Cell, ...]:
    drawn = Cell(length.stratum, length.tokens, drawn=True)
    return cells(prober.limits, prober.consent, drawn, chained=_chained(span))


def _cost(prober: Prober, length: DrawnLength, span: Span) -> int:
    """Accepted tokens of a round with this length."""
    return sum(cell.tokens for cell in _order(prober, length, span) if not cell.above)


PROBE = CanaryProbe()
