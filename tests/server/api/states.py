"""Check states for the API's tests, as an audit would have left them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Kind, Result, Run, RunState, Trigger
from kvaudit.server.fleet.models import Deployment, FingerprintChange
from tests import factories
from tests.recorded import recorded


def a_state(deployment: Deployment, check: str, verdict: str = "pass", **fields: Any) -> CheckState:
    """The check said ``verdict`` an hour ago and that holds for a week."""
    now = timezone.now()
    fields = {"since": now - timedelta(hours=1), "last_confirmed": now - timedelta(hours=1), **fields}
    fields.setdefault("expires_at", fields["last_confirmed"] + timedelta(days=7))
    summary = fields.pop("summary", f"{check} says {verdict}")
    run = Run.objects.create(
        deployment=deployment,
        kind=Kind.PASSIVE,
        trigger=Trigger.MANUAL,
        checks=[check],
        state=RunState.FINISHED,
        verdict=verdict,
        expires_at=now,
    )
    result = Result.objects.create(
        run=run,
        deployment=deployment,
        attempt=1,
        check_id=check,
        verdict=verdict,
        summary=summary,
        observed_at=fields["last_confirmed"],
    )
    recorded(run)
    return CheckState.objects.create(
        deployment=deployment,
        check_id=check,
        verdict=verdict,
        summary=summary,
        run=run,
        result=result,
        **fields,
    )


def a_change(
    deployment: Deployment, *, significant: bool = True, minutes_ago: float = 1
) -> FingerprintChange:
    return FingerprintChange.objects.create(
        deployment=deployment,
        node=factories.a_node(deployment),
        at=timezone.now() - timedelta(minutes=minutes_ago),
        significant=significant,
        summary="pool 681280 -> 2000000",
    )
