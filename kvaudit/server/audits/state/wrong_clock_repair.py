"""Mends what earlier releases left behind when a worker's clock was wrong: states and readings of moments that
have not come, and fails that were kept as results but never entered state, with what came after them. Mended
once, at every start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import alerts
from kvaudit.server.audits.execution.outcome import interval_of
from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state import intervals, record_check

BY_CLOCK = "wrong clock"
AT_ONCE = 200

_STATES = """
    UPDATE audits_checkstate SET
        since = LEAST(since, %(now)s), last_confirmed = LEAST(last_confirmed, %(now)s),
        closed_at = CASE WHEN closed_at > %(now)s THEN %(now)s ELSE closed_at END,
        expires_at = CASE WHEN closed_at IS NULL AND verdict <> 'fail' AND last_confirmed > %(limit)s
                          THEN LEAST(expires_at, %(now)s) ELSE expires_at END,
        expired_by = CASE WHEN closed_at IS NULL AND verdict <> 'fail' AND last_confirmed > %(limit)s
                          THEN %(why)s ELSE expired_by END
    WHERE last_confirmed > %(limit)s OR closed_at > %(limit)s
"""

_SNAPSHOTS = """
    UPDATE fleet_nodesnapshot SET
        first_seen = LEAST(first_seen, %(now)s), last_confirmed = LEAST(last_confirmed, %(now)s)
    WHERE last_confirmed > %(limit)s
"""

# Every result that counted has become the one its state rests on, so a fail above that one was passed over.
_FAILS = """
    SELECT missed.id FROM audits_checkstate state
    CROSS JOIN LATERAL (
        SELECT result.id FROM audits_result result
        WHERE result.deployment_id = state.deployment_id AND result.check_id = state.check_id
          AND result.verdict = 'fail' AND result.id > state.result_id
        ORDER BY result.id DESC LIMIT 1) missed
    WHERE state.closed_at IS NULL AND state.node_id IS NULL AND state.verdict <> 'fail'
    ORDER BY missed.id
"""


@dataclass(frozen=True, slots=True)
class Mended:
    """``moments``: states and readings that lay ahead; ``fails``: those that now stand."""

    moments: int
    fails: int


def mend() -> Mended:
    """Bring moments that have not come back to now, and let fails that were passed over stand. A pass whose moment
    had not come is expired: when it was seen is not known. Finds nothing the second time."""
    clock.set_by_database()
    return Mended(_bring_back(), _enter())


@transaction.atomic
def _bring_back() -> int:
    now = clock.now()
    values: dict[str, Any] = {"now": now, "limit": now + clock.NOTABLE, "why": BY_CLOCK}
    with connection.cursor() as cursor:
        cursor.execute(_STATES, values)
        moved: int = cursor.rowcount
        cursor.execute(_SNAPSHOTS, values)
        return moved + int(cursor.rowcount)


def _enter() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_FAILS)
        ids = [pk for (pk,) in cursor.fetchall()]
    entered = 0
    for start in range(0, len(ids), AT_ONCE):
        entered += _enter_some(ids[start : start + AT_ONCE])
    return entered


@transaction.atomic
def _enter_some(ids: list[int]) -> int:
    results = list(Result.objects.filter(pk__in=ids).select_related("run__plan").order_by("pk"))
    intervals.lock_deployments({result.deployment_id for result in results})
    changes = intervals.apply(map(_observation, [*results, *_since(results)]))
    alerts.save_and_notify(changes)
    return sum(change.after == Verdict.FAIL.value for change in changes)


def _since(fails: Iterable[Result]) -> list[Result]:
    """What came after these fails was passed over with them. Left out, the fail would stand against a later result
    that says otherwise, which the verification of the ledger takes for a state that was changed."""
    later = [
        row
        for fail in fails
        for row in Result.objects.filter(
            deployment_id=fail.deployment_id,
            check_id=fail.check_id,
            pk__gt=fail.pk,
            observed_at__gt=fail.observed_at,
        ).select_related("run__plan")
    ]
    counting = record_check.counting(later)
    return [row for row in later if row.pk in counting]


def _observation(result: Result) -> intervals.Observation:
    return intervals.Observation(
        deployment_id=result.deployment_id,
        check=result.check_id,
        verdict=Verdict(result.verdict),
        at=min(result.observed_at, clock.now()),
        run_id=result.run_id,
        result_id=result.pk,
        warn=result.warn,
        severity=result.severity,
        summary=result.summary,
        interval=interval_of(result.run),
        fingerprint=result.run.fingerprint,
        zone=intervals.zone_of(result) if result.check_id == "pool" else None,
    )
