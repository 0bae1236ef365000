"""State as intervals: what each check says of a deployment, from when to when.

Whoever writes here holds the deployment's row lock (`lock_deployments`), so that two runs of one
deployment apply their results one after the other. Only a newer observation changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kvaudit.audits.models import CheckState, Result, StateChange
from kvaudit.fleet.models import Deployment, FingerprintChange
from kvaudit.readings import whole_number
from kvaudit.verdict import Verdict

Zone = tuple[int, int]

SHORTEST_EXPIRY = timedelta(days=7)
MOST_TOKENS = 10**15
"""No prompt is longer."""
BY_CAPACITY = "capacity change"


@dataclass(frozen=True, slots=True)
class Observation:
    """One result as it bears on state. ``interval`` is that of the run's plan in seconds, 0 without."""

    deployment_id: int
    check: str
    verdict: Verdict
    at: datetime
    run_id: int
    result_id: int
    warn: bool = False
    severity: str = ""
    summary: str = ""
    interval: int = 0
    fingerprint: str = ""
    zone: Zone | None = None


def zone_of(result: Result) -> Zone | None:
    """Prompt tokens [low, high) of the danger zone that a fail of `pool` tells of; None where it tells of none.
    Measures are what an engine made of them: what is no zone is none."""
    failed = result.verdict == Verdict.FAIL and isinstance(result.measures, dict)
    told = result.measures.get("danger_zone") if failed else None
    if not isinstance(told, list) or len(told) != 2:
        return None
    low, high = whole_number(told[0]), whole_number(told[1])
    return (low, high) if low is not None and high is not None and 0 <= low < high <= MOST_TOKENS else None


def expiry(at: datetime, interval: int) -> datetime:
    """1.5 x the plan's interval but at least 7 days (checks.md, Verdicts)."""
    return at + max(SHORTEST_EXPIRY, timedelta(seconds=1.5 * interval))


def lock_deployments(ids: Iterable[int]) -> dict[int, Deployment]:
    """Lock these deployments in order of id; new rows that point at them are not hindered."""
    rows = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("team")
    return {each.pk: each for each in rows.filter(pk__in=set(ids)).order_by("pk")}


def apply(observations: Iterable[Observation]) -> list[StateChange]:
    """Confirm, close and open intervals; returns the changes of verdict, not saved yet."""
    ordered = sorted(observations, key=lambda each: (each.at, each.result_id))
    if not ordered:
        return []
    held = {
        (state.deployment_id, state.check_id): state
        for state in CheckState.objects.filter(
            closed_at=None,
            node=None,
            deployment_id__in={each.deployment_id for each in ordered},
            check_id__in={each.check for each in ordered},
        )
    }
    touched: dict[int, CheckState] = {}
    opened: list[CheckState] = []
    changes: list[StateChange] = []
    for seen in ordered:
        key = (seen.deployment_id, seen.check)
        state = held.get(key)
        if state is not None and seen.at <= state.last_confirmed:
            _heard_late(state, seen)
            continue
        if state is not None and state.pk:
            touched[state.pk] = state
        if state is not None and _confirms(state, seen):
            _confirm(state, seen)
            continue
        if state is not None:
            state.closed_at = seen.at
        if (change := _change(state, seen)) is not None:
            changes.append(change)
        held[key] = _opened(state, seen)
        opened.append(held[key])
    CheckState.objects.bulk_update(
        touched.values(),
        [
            "last_confirmed", "expires_at", "expiry_noted", "summary", "interval", "run", "result", "closed_at",
            "zone_low", "zone_high",
        ],
    )  # fmt: skip
    CheckState.objects.bulk_create(opened)
    return changes


def expire_for(changes: Sequence[FingerprintChange]) -> None:
    """A capacity change ends what was known before it: the intervals of its deployment expire then."""
    for change in changes:
        CheckState.objects.filter(
            deployment_id=change.deployment_id,
            closed_at=None,
            last_confirmed__lte=change.at,
            expires_at__gt=change.at,
        ).update(expires_at=change.at, expired_by=BY_CAPACITY, expiry_noted=True)


def _confirms(state: CheckState, seen: Observation) -> bool:
    """Whether the result goes on with the interval: it says the same, of the same configuration,
    and no gap longer than the expiry lies between."""
    same = (state.verdict, state.warn, state.severity, state.fingerprint) == (
        seen.verdict.value,
        seen.warn,
        seen.severity,
        seen.fingerprint,
    )
    return same and state.expires_at > seen.at


def _confirm(state: CheckState, seen: Observation) -> None:
    state.interval = seen.interval or state.interval
    state.last_confirmed = seen.at
    state.expires_at = expiry(seen.at, state.interval)
    state.expiry_noted = False
    state.summary = seen.summary
    state.run_id, state.result_id = seen.run_id, seen.result_id
    _widen(state, seen.zone)


def _widen(state: CheckState, zone: Zone | None) -> None:
    if zone is not None:
        low, high = zone
        state.zone_low = low if state.zone_low is None else min(low, state.zone_low)
        state.zone_high = high if state.zone_high is None else max(high, state.zone_high)


def _heard_late(state: CheckState, seen: Observation) -> None:
    """A result older than what is known changes no verdict. The danger zone of a fail was open all the same: its
    lengths go to the fail that lasted then, be it that tests came to nothing since it was last seen."""
    if seen.zone is None:
        return
    lasted: CheckState | None = state
    if seen.at < state.since or state.verdict != seen.verdict:
        concluded = CheckState.objects.concluded().filter(
            deployment_id=seen.deployment_id, check_id=seen.check, since__lte=seen.at
        )
        lasted = concluded.first()
    if lasted is not None and lasted.verdict == seen.verdict:
        _widen(lasted, seen.zone)
        # Its other columns belong to whoever confirms or expires it; one that is not stored yet will be.
        CheckState.objects.filter(pk=lasted.pk).update(zone_low=lasted.zone_low, zone_high=lasted.zone_high)


def _opened(before: CheckState | None, seen: Observation) -> CheckState:
    interval = seen.interval or (before.interval if before else 0)
    opened = CheckState(
        deployment_id=seen.deployment_id,
        check_id=seen.check,
        verdict=seen.verdict.value,
        warn=seen.warn,
        severity=seen.severity,
        summary=seen.summary,
        since=seen.at,
        last_confirmed=seen.at,
        expires_at=expiry(seen.at, interval),
        interval=interval,
        fingerprint=seen.fingerprint,
        run_id=seen.run_id,
        result_id=seen.result_id,
    )
    _widen(opened, seen.zone)
    return opened


def _change(before: CheckState | None, seen: Observation) -> StateChange | None:
    """The row for the timeline; None when only the configuration's digest moved."""
    expired = before is not None and before.expires_at <= seen.at
    said = "" if before is None else "expired" if expired else before.verdict
    if before is not None and (said, before.warn, before.severity) == (
        seen.verdict.value,
        seen.warn,
        seen.severity,
    ):
        return None
    return StateChange(
        at=seen.at,
        deployment_id=seen.deployment_id,
        run_id=seen.run_id,
        what=StateChange.What.VERDICT,
        check_id=seen.check,
        before=said,
        after=seen.verdict.value,
        summary=seen.summary,
        detail={"warn": seen.warn, "severity": seen.severity, "last": before.verdict if before else ""},
    )
