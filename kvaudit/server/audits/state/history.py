"""Loads what only the database knows, for the checks that need it (`drift`, an edge limit in `pool`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import Max, Q

from kvaudit.auditor.checks.contract import History
from kvaudit.auditor.readings import Fingerprint
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.models import CheckState
from kvaudit.server.audits.state.deployment_status import GATE
from kvaudit.server.fleet.models import Deployment, FingerprintChange, NodeSnapshot


def history_for(deployment: Deployment) -> History:
    return histories([deployment])[deployment.pk]


def histories(deployments: Iterable[Deployment]) -> dict[int, History]:
    """Deployment id -> history. Five queries, however many deployments."""
    wanted = list(deployments)
    ids = [deployment.pk for deployment in wanted]
    now = clock.now()
    refusing = _edge_limits_seen_refusing(wanted, now)
    changed = dict(
        FingerprintChange.objects.significant()
        .filter(deployment__in=ids)
        .order_by()
        .values_list("deployment")
        .annotate(Max("at"))
    )
    completed = _completed(ids)
    open_gate = defaultdict(set)
    for deployment_id, check in CheckState.objects.filter(
        deployment__in=ids, closed_at=None, node=None, check_id__in=GATE, expires_at__gt=now
    ).values_list("deployment_id", "check_id"):
        open_gate[deployment_id].add(check)
    previous: dict[int, dict[str, Fingerprint]] = defaultdict(dict)
    for snapshot in NodeSnapshot.objects.filter(
        current=True, node__deployment__in=ids, node__valid_to=None
    ).select_related("node"):
        previous[snapshot.node.deployment_id][snapshot.node.name] = snapshot.reference_fingerprint
    return {
        pk: History(
            edge_limit_seen_refusing=pk in refusing,
            fingerprint_changed_at=changed.get(pk),
            gate_completed_at=_gate_completed(completed[pk], changed.get(pk)),
            gate_expired=not open_gate[pk].issuperset(GATE),
            previous=previous[pk],
        )
        for pk in ids
    }


def _edge_limits_seen_refusing(deployments: Sequence[Deployment], now: datetime) -> set[int]:
    """Deployments whose `rejection` holds, passed, and saw the edge limit that is declared *today* refuse."""
    declared = {
        deployment.pk: deployment.edge_limit
        for deployment in deployments
        if deployment.edge_limit is not None
    }
    held = CheckState.objects.filter(
        deployment__in=declared,
        closed_at=None,
        node=None,
        check_id="rejection",
        verdict=Verdict.PASS.value,
        expires_at__gt=now,
        result__measures__edge_limit_refused=True,
    )
    seen = held.values_list("deployment_id", "result__measures__edge_limit")
    return {pk for pk, limit in seen if limit == declared[pk]}


def _completed(ids: list[int]) -> dict[int, dict[str, datetime]]:
    """Deployment -> check -> when it last completed, whatever its verdict.

    *error* is no completion: kvaudit failed and nothing was learnt (checks.md, Verdicts), so an
    expired key must not close checklist item 5. Nor is a check that sent nothing: without an entry, a key
    or after an earlier check ended the set it is *inconclusive* and says ``asked: false``.
    """
    found: dict[int, dict[str, datetime]] = defaultdict(dict)
    rows = (
        CheckState.objects.filter(
            ~Q(verdict=Verdict.ERROR.value), deployment__in=ids, node=None, check_id__in=GATE
        )
        .filter(
            ~Q(verdict=Verdict.INCONCLUSIVE.value)
            | Q(result__measures__asked__isnull=True)
            | Q(result__measures__asked=True)
        )
        .values_list("deployment_id", "check_id")
        .annotate(Max("last_confirmed"))
    )
    for deployment_id, check, last in rows:
        found[deployment_id][check] = last
    return found


def _gate_completed(by_check: dict[str, datetime], changed: datetime | None) -> datetime | None:
    """When the last of the gate set completed since the change (or ever, without one); None while
    one has not."""
    since = [last for check in GATE if (last := by_check.get(check)) and (changed is None or last >= changed)]
    return max(since) if len(since) == len(GATE) else None
