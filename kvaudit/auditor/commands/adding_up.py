"""Judges a run together with what earlier ones of the same build found, where no database does. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from kvaudit.auditor.stats import accumulated_said, run_evidence
from kvaudit.auditor.stats.accumulated import Accumulated, accumulate
from kvaudit.auditor.stats.run_evidence import RunEvidence
from kvaudit.auditor.verdict import Result, Verdict

OF_A_NIGHT = frozenset({"total", "fresh"})
TO_QUALIFY = frozenset({"boundary"})
"""Which sums decide: those of production, or that of the boundary on this build."""

FIXED = "Mend it and say so (kvaudit probe --state FILE --fixed); evidence counts from there on."


def evidence_of(result: Result, now: datetime) -> RunEvidence | None:
    """What a result adds, None where it adds nothing."""
    return run_evidence.read(now, result.measures.get("evidence"))


def added_up(
    result: Result,
    runs: Sequence[RunEvidence],
    now: datetime,
    *,
    decide: Collection[str],
    fixes: Sequence[datetime] = (),
) -> Result:
    """``result`` as all ``runs`` show it together, its own among them. What was seen in it stands: a fail, an error, a
    miss that nothing explains, lengths that were not allowed."""
    own = evidence_of(result, now)
    if own is None:
        return result
    state = accumulate(runs, now, build=own.build, fixes=fixes)
    together = accumulated_said.as_measure(state)
    result = replace(result, measures={**result.measures, "accumulated": together})
    if (
        result.verdict not in (Verdict.PASS, Verdict.INCONCLUSIVE)
        or own.doubt
        or result.measures.get("withheld")
    ):
        return result
    said = _sums(state, decide)
    if state.hit_at is not None:
        before = f"A leak was found on {state.hit_at:%d %B %Y}, and nobody has said that it is mended."
        summary = f"{before} {result.summary}"
        return replace(result, verdict=Verdict.INCONCLUSIVE, warn=True, summary=summary, next=FIXED)
    if not state.build or any(rule.key in decide for rule in state.missing):
        why = said if state.build else "Nobody knows which build answered, so nothing adds up."
        return replace(
            result,
            verdict=Verdict.INCONCLUSIVE,
            summary=f"{why} {result.summary}",
            next=result.next if result.verdict is Verdict.INCONCLUSIVE else accumulated_said.next_step(state),
        )
    bound = accumulated_said.percent(state.bound)
    return replace(
        result,
        verdict=Verdict.PASS,
        summary=f"Clean so far: {said} Together fewer than {bound} of requests drawn like these leak (95 % "
        f"confidence). This run: {result.summary}",
    )


def _sums(state: Accumulated, decide: Collection[str]) -> str:
    """ "boundary 21.3 of 20 effective trials on sglang 0.5.22, page 64."."""
    named = {"total": "30 days", "fresh": "7 days", "boundary": "boundary"}
    sums = [
        f"{named[rule.key]} {state.has(rule):.1f} of {rule.needs:g}"
        for rule in state.rules
        if rule.key in decide
    ]
    return f"{', '.join(sums)} effective trials on {state.build_said or 'this build'}."
