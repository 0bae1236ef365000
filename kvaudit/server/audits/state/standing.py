"""What all runs of a deployment show together, written beside what the newest shows alone.

A check whose evidence accumulates (`descriptor.Check.accumulates`) decides little in one run. When a result of it is
stored, ``measures["accumulated"]`` gets what the runs of 30 days come to with it, and state follows that
(`verdict_of`), while the result stays what this run showed. It is part of the result, so the ledger's entry covers it,
and pages read it with the result: no page adds up history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.auditor.stats.accumulated import WINDOW, accumulate
from kvaudit.auditor.stats.accumulated_said import BRINGS_BOUNDARY, as_measure, percent
from kvaudit.auditor.stats.run_evidence import PRODUCTION, RunEvidence, read
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result, StateChange
from kvaudit.server.audits.models.runs import ResultQuerySet
from kvaudit.server.fleet.models import Deployment

ACCUMULATING = checks.where("accumulates")
KEY = "accumulated"
MOST_RUNS = 1_000
"""Results of one deployment and check within 30 days that are added up, the newest."""

MOST_FAILS = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """What state says instead of one result's own verdict. ``until``: when a pass has to be shown anew."""

    verdict: Verdict
    severity: str
    summary: str
    until: datetime | None = None


class _Kept(NamedTuple):
    """What counts of a stored result."""

    pk: int | None
    at: datetime
    verdict: str
    severity: str
    summary: str
    evidence: Any
    doubt: Any


_KEPT = ("pk", "observed_at", "verdict", "severity", "summary", "measures__evidence", "measures__doubt")


def add(rows: Iterable[Result]) -> None:
    """Give new rows, which are not stored yet, what all runs come to with them. Two queries a row of such a check, and
    one or two more where it ever failed. The caller holds the deployment's lock."""
    for row in rows:
        if row.check_id in ACCUMULATING and isinstance(row.measures, dict) and "evidence" in row.measures:
            runs = _earlier(row)
            if (own := _evidence(row.check_id, _kept(row), _never)) is not None:
                runs.append(own)
            hit = any(one.hits for one in runs)
            state = accumulate(runs, row.observed_at, fixes=_fixes(row) if hit else ())
            row.measures = {**row.measures, KEY: as_measure(state)}


def of(result: Result) -> Standing:
    """What state says with this result. Its own verdict where nothing accumulates (another check, a result from before
    evidence was kept), where it fails, and where nothing was learnt (*error*)."""
    own = Standing(Verdict(result.verdict), result.severity, result.summary)
    told = result.measures.get(KEY) if isinstance(result.measures, dict) else None
    if result.check_id not in ACCUMULATING or not isinstance(told, Mapping):
        return own
    if own.verdict in (Verdict.FAIL, Verdict.ERROR):
        return own
    verdict, until = Verdict.parse(told.get("verdict")), told.get("expires_at")
    return Standing(
        verdict,
        "critical" if verdict is Verdict.FAIL else "",
        str(told.get("summary", "")),
        datetime.fromisoformat(until) if isinstance(until, str) else None,
    )


def told(result_id: int | None) -> dict[str, Any] | None:
    """``measures["accumulated"]`` of a result; None where it has none. One query."""
    if result_id is None:
        return None
    found = Result.objects.filter(pk=result_id).values_list(f"measures__{KEY}", flat=True).first()
    return found if isinstance(found, dict) else None


def next_step(result: Result) -> str:
    """What to do now: what all runs together lack, where these say more than the result alone."""
    told = result.measures.get(KEY) if isinstance(result.measures, dict) else None
    failed = result.verdict in (Verdict.FAIL.value, Verdict.ERROR.value)
    if failed or not isinstance(told, dict) or told.get("doubt"):
        return result.next_step
    return str(told.get("next") or result.next_step)


def qualified(told: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the build was shown at the boundary, with the bound, or what it lacks and what brings it."""
    if not told["build"]:
        return False, f"{told['summary']} {told['next']}"
    has, needs = next((each["has"], each["needs"]) for each in told["needs"] if each["key"] == "boundary")
    said = f"the boundary has {has:.1f} of {needs:g} effective trials on this build"
    if has < needs:
        return False, f"{said}. {BRINGS_BOUNDARY}"
    return True, f"{said}, and fewer than {percent(told['bound'])} of requests drawn like these leak"


def _kept(row: Result) -> _Kept:
    told = row.measures
    return _Kept(
        row.pk,
        row.observed_at,
        row.verdict,
        row.severity,
        row.summary,
        told.get("evidence"),
        told.get("doubt"),
    )


def _never(_: _Kept) -> bool:
    return False


def note_fix(deployment: Deployment, check: str, at: datetime, said: str) -> None:
    """Somebody recorded the fix of what the check had found: until then no clean run takes a hit back."""
    if check in ACCUMULATING:
        StateChange.objects.create(
            at=at,
            deployment=deployment,
            what=StateChange.What.FIXED,
            check_id=check,
            summary=f"A fix was recorded for {check}: {said}",
        )


def _earlier(row: Result) -> list[RunEvidence]:
    """By the columns that count, since measures are long. Hits count at any age."""
    rows = Result.objects.filter(deployment_id=row.deployment_id, check_id=row.check_id).order_by("-id")
    within = rows.filter(observed_at__gt=row.observed_at - WINDOW).exclude(verdict=Verdict.FAIL.value)
    failed = rows.filter(verdict=Verdict.FAIL.value)
    found = map(
        _Kept._make, [*within.values_list(*_KEPT)[:MOST_RUNS], *failed.values_list(*_KEPT)[:MOST_FAILS]]
    )
    return list(filter(None, (_evidence(row.check_id, each, _taken_back(rows)) for each in found)))


def _taken_back(rows: ResultQuerySet) -> Callable[[_Kept], bool]:
    """Whether a fail from before evidence was kept was followed by a pass of that time, which ended it then."""

    def taken_back(failed: _Kept) -> bool:
        later = rows.filter(id__gt=failed.pk, verdict=Verdict.PASS.value)
        return later.filter(measures__evidence__isnull=True).exists()

    return taken_back


def _evidence(check: str, kept: _Kept, taken_back: Callable[[_Kept], bool]) -> RunEvidence | None:
    doubt = kept.summary if kept.verdict == Verdict.INCONCLUSIVE else ""
    run = read(kept.at, kept.evidence, kept.doubt if isinstance(kept.doubt, str) else doubt)
    if kept.verdict != Verdict.FAIL or checks.meaning(check, kept.severity) is not Meaning.LEAK:
        return run
    if run is not None:
        return replace(run, hits=max(run.hits, 1))
    if kept.evidence is None and taken_back(kept):
        return None
    return RunEvidence(kept.at, "", "", PRODUCTION, 0.0, (), {}, 1)


def _fixes(row: Result) -> list[datetime]:
    rows = StateChange.objects.filter(deployment=row.deployment_id, what=StateChange.What.FIXED)
    return list(rows.filter(check_id=row.check_id).order_by("-at").values_list("at", flat=True)[:MOST_FAILS])
