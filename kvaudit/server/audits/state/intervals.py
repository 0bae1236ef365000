"""Keeps state as intervals: what each check says of a deployment, from when to when.

Whoever writes here holds the deployment's row lock (`lock_deployments`), so that two runs of one
deployment apply their results one after the other. A newer observation changes what is said; of an older
one, a *fail* alone does: no pass that was heard first may hide it (`_enter_late`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from kvaudit.auditor.readings import whole_number
from kvaudit.auditor.verdict import SEVERITIES, Verdict
from kvaudit.server import clock
from kvaudit.server.audits.models import CheckState, Result, StateChange
from kvaudit.server.fleet.models import Deployment, FingerprintChange

Zone = tuple[int, int]
SHORTEST_EXPIRY = timedelta(days=7)
MOST_TOKENS = 10**15
"""No prompt is longer."""
RECENT = 200  # results of one check and deployment that are looked through for a newer moment
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
    until: datetime | None = None  # when its evidence is too old, where that comes before it expires
    heard: bool = False  # it was applied when it was seen, and comes again with the end of its run


def zone_of(result: Result) -> Zone | None:
    """Prompt tokens [low, high) of the danger zone that a fail of `pool` tells of; None where it tells of none.
    Measures are what an engine made of them: what is no zone is none."""
    failed = result.verdict == Verdict.FAIL and isinstance(result.measures, dict)
    told = result.measures.get("danger_zone") if failed else None
    if not isinstance(told, list) or len(told) != 2:
        return None
    low, high = whole_number(told[0]), whole_number(told[1])
    return (low, high) if low is not None and high is not None and 0 <= low < high <= MOST_TOKENS else None


def expiry(at: datetime, interval: int, until: datetime | None = None) -> datetime:
    """1.5 x the plan's interval but at least 7 days (checks.md, Verdicts), ``until`` at most."""
    own = at + max(SHORTEST_EXPIRY, timedelta(seconds=1.5 * interval))
    return min(own, until or own)


def lock_deployments(ids: Iterable[int]) -> dict[int, Deployment]:
    """Lock these deployments in order of id; new rows that point at them are not hindered."""
    rows = Deployment.objects.select_for_update(no_key=True, of=("self",)).select_related("team")
    return {row.pk: row for row in rows.filter(pk__in=set(ids)).order_by("pk")}


def apply(observations: Iterable[Observation]) -> list[StateChange]:
    """Confirm, close and open intervals; returns the changes of verdict, not saved yet."""
    # Of one moment the fail comes last, so that it is what stands.
    ordered = sorted(
        observations,
        key=lambda observation: (observation.at, observation.verdict is Verdict.FAIL, observation.result_id),
    )
    if not ordered:
        return []
    held = {
        (state.deployment_id, state.check_id): state
        for state in CheckState.objects.filter(
            closed_at=None,
            node=None,
            deployment_id__in={observation.deployment_id for observation in ordered},
            check_id__in={observation.check for observation in ordered},
        )
    }
    touched: dict[int, CheckState] = {}
    opened: list[CheckState] = []
    changes: list[StateChange] = []
    for seen in ordered:
        key = (seen.deployment_id, seen.check)
        state = held.get(key)
        new: CheckState | None = None
        if state is not None:
            _bring_back(state, seen)
            if _is_late(seen, state):
                new = None if seen.heard or seen.verdict is not Verdict.FAIL else _enter_late(state, seen)
                if new is None:
                    continue
            if state.pk:
                touched[state.pk] = state
            if new is None and _confirms(state, seen):
                _confirm(state, seen)
                continue
            state.closed_at = state.closed_at or seen.at
        if (change := _change(state, seen)) is not None:
            changes.append(change)
        held[key] = new or _opened(state, seen)
        opened.append(held[key])
    CheckState.objects.bulk_update(
        touched.values(),
        [
            "since", "last_confirmed", "expires_at", "expiry_noted", "summary", "interval", "run", "result",
            "closed_at", "zone_low", "zone_high",
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
            expires_at__gt=change.at,
        ).filter(
            # What was last confirmed at a moment that has not come was confirmed before.
            Q(last_confirmed__lte=change.at) | Q(last_confirmed__gt=clock.now() + clock.NOTABLE)
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
    state.expires_at = expiry(seen.at, state.interval, seen.until)
    state.expiry_noted = False
    state.summary = seen.summary
    state.run_id, state.result_id = seen.run_id, seen.result_id
    _widen(state, seen.zone)


def _widen(state: CheckState, zone: Zone | None) -> None:
    if zone is not None:
        low, high = zone
        state.zone_low = low if state.zone_low is None else min(low, state.zone_low)
        state.zone_high = high if state.zone_high is None else max(high, state.zone_high)


def _bring_back(state: CheckState, seen: Observation) -> None:
    """A state whose time has not come was written by a clock that was wrong, and nothing would ever be newer:
    it is taken for the oldest that it can be."""
    if clock.is_to_come(state.last_confirmed):
        state.last_confirmed = min(state.last_confirmed, seen.at - timedelta(microseconds=1))
        state.since = min(state.since, state.last_confirmed)


def _outweighs(seen: Observation, state: CheckState) -> bool:
    """Whether it is a fail, and what is known is none or a lesser one."""
    if seen.verdict is not Verdict.FAIL:
        return False
    return state.verdict != Verdict.FAIL or _gravity(seen.severity) > _gravity(state.severity)


def _gravity(severity: str) -> int:
    return len(SEVERITIES) - SEVERITIES.index(severity) if severity in SEVERITIES else 0


def _is_late(seen: Observation, state: CheckState) -> bool:
    """Whether what is known is as new. Of one moment a fail outweighs what else is said."""
    if seen.at == state.last_confirmed:
        return seen.heard or not _outweighs(seen, state)
    return seen.at < state.last_confirmed or (
        state.verdict == Verdict.FAIL and seen.verdict is not Verdict.FAIL and _was_looked_at_after(seen)
    )


def _was_looked_at_after(seen: Observation) -> bool:
    """Whether somebody has looked since. A fail that was heard late stands at its own moment, before looks that were
    heard first; only what is newer than all of them may end it. Results come nearly in order: the last ones tell."""
    rows = Result.objects.filter(deployment_id=seen.deployment_id, check_id=seen.check).order_by("-id")
    moments = rows.values_list("observed_at", flat=True)[:RECENT]
    return any(seen.at < at and not clock.is_to_come(at) for at in moments)


def _enter_late(state: CheckState, seen: Observation) -> CheckState | None:
    """A fail that is heard of after something newer: the interval that begins in place of ``state``, the open
    one, or None where none begins.

    One begins unless a fail as grave lasted then, or lasts now; that one is widened, by its lengths and back
    to the moment. Passes after that moment do not count against it: whoever looked may have looked elsewhere
    (two processes behind one address), and what is not known to be mended is not. So what lasted then ends at
    that moment, and what began later ends where it began; fails among these are part of it.
    """
    rows = CheckState.objects.filter(
        Q(closed_at=None) | Q(closed_at__gt=seen.at),
        deployment_id=seen.deployment_id, node=None, check_id=seen.check,
    ).order_by("since", "id")  # fmt: skip
    states = [state, *(row for row in rows if row.pk != state.pk)]
    lasted = [row for row in states if row.since <= seen.at]
    for covers in (row for row in lasted if not _outweighs(seen, row)):
        before = covers.zone_low, covers.zone_high
        _widen(covers, seen.zone)
        if (covers.zone_low, covers.zone_high) != before:
            # Its other columns belong to whoever confirms or expires it; one that is not stored yet will be.
            CheckState.objects.filter(pk=covers.pk).update(
                zone_low=covers.zone_low, zone_high=covers.zone_high
            )
        return None
    goes_on = _opened(state, seen) if _outweighs(seen, state) else state
    for row in (row for row in states if row is not goes_on):
        if row not in lasted and row.verdict == Verdict.FAIL:
            _take_in(goes_on, row)
        _end(row, seen.at)
    CheckState.objects.bulk_update(
        (row for row in states if row is not state), ["closed_at", "last_confirmed"]
    )
    if goes_on is not state:
        return goes_on
    state.since = min(state.since, seen.at)
    _widen(state, seen.zone)
    CheckState.objects.filter(pk=state.pk).update(
        since=state.since, zone_low=state.zone_low, zone_high=state.zone_high
    )
    return None


def _take_in(state: CheckState, part: CheckState) -> None:
    """Another fail's interval becomes part of this one."""
    if part.zone_low is not None and part.zone_high is not None:
        _widen(state, (part.zone_low, part.zone_high))
    if part.last_confirmed > state.last_confirmed:
        state.last_confirmed, state.expires_at = part.last_confirmed, part.expires_at


def _end(state: CheckState, at: datetime) -> None:
    """End an interval at a moment, or where it began if that is later."""
    state.closed_at = max(state.since, at)
    state.last_confirmed = min(state.last_confirmed, state.closed_at)


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
        expires_at=expiry(seen.at, interval, seen.until),
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
