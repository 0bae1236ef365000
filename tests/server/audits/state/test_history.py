"""What the database knows of the gate set: it has completed only where every check of it was asked."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Kind, Result, Run, RunState, Trigger
from kvaudit.server.audits.state import intervals
from kvaudit.server.audits.state.deployment_status import GATE
from kvaudit.server.audits.state.history import history_for
from kvaudit.server.fleet.models import Deployment
from tests.factories import a_deployment

pytestmark = pytest.mark.django_db


def said(deployment: Deployment, check: str, verdict: Verdict, measures: dict[str, Any]) -> None:
    now = timezone.now()
    run = Run.objects.create(
        deployment=deployment, kind=Kind.ACTIVE, trigger=Trigger.MANUAL, checks=[check],
        state=RunState.FINISHED, verdict=verdict.value, expires_at=now,
    )  # fmt: skip
    result = Result.objects.create(
        run=run, deployment=deployment, attempt=1, check_id=check, verdict=verdict.value, summary="",
        measures=measures, observed_at=now,
    )  # fmt: skip
    intervals.apply([intervals.Observation(deployment.pk, check, verdict, now, run.pk, result.pk)])


@pytest.mark.parametrize(
    ("verdict", "measures", "completed"),
    [
        (Verdict.PASS, {}, True),
        (Verdict.FAIL, {"trials": 3}, True),
        (Verdict.INCONCLUSIVE, {"valid": 4}, True),
        (Verdict.INCONCLUSIVE, {"asked": False}, False),
        (Verdict.ERROR, {}, False),
    ],
)
def test_the_gate_set_completes_only_where_it_was_asked(
    verdict: Verdict, measures: dict[str, Any], completed: bool
) -> None:
    """Without an entry or a key nothing is sent: then the gate has not run, whatever its rows say."""
    deployment = a_deployment()
    for check in GATE:
        said(deployment, check, Verdict.PASS, {}) if check != "canary" else None
    said(deployment, "canary", verdict, measures)
    assert (history_for(deployment).gate_completed_at is not None) is completed
