"""Every (check x severity) goes through every consumer, and all of them agree on what it means: incident, quarantine,
exposure report, compliance, gate and the fleet page ask one descriptor."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.audits.state.tiers import Tier
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import opening, traffic_gate
from kvaudit.server.incidents.models import Incident, Kind, Quarantine
from kvaudit.server.inquiries.exposure.report import statement_of
from kvaudit.server.inquiries.exposure.timespans import SpanStatus
from kvaudit.server.web.fleet.page import FleetRow
from tests.server.checklists.claims import a_waiver
from tests.server.incidents.builders import a_result, a_state, a_target

pytestmark = pytest.mark.django_db

SEVERITIES = ("critical", "high", "medium", "")
HOUR = timedelta(hours=1)


def failed(check: str, severity: str) -> Deployment:
    """Everything had passed; then this failed, an hour ago."""
    deployment, now = a_target(), timezone.now()
    for name in checks.MODULES:
        a_state(a_result(deployment, name, at=now - 3 * HOUR))
    result = a_result(deployment, check, "fail", at=now - HOUR, severity=severity)
    type(result).objects.filter(pk=result.pk).update(severity=severity)
    result.refresh_from_db()
    a_state(result, before="pass")
    opening.consume()
    return deployment


@pytest.mark.parametrize("check", checks.MODULES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_every_consumer_says_the_same(check: str, severity: str) -> None:
    deployment = failed(check, severity)
    meaning = checks.meaning(check, severity)
    leak = meaning is Meaning.LEAK

    incident = Incident.objects.filter(deployment=deployment).first()
    kinds = {Meaning.LEAK: Kind.LEAK, Meaning.BOUNDARY: Kind.BOUNDARY, Meaning.CONFIGURATION: None}
    assert (incident.kind if incident else None) == kinds[checks.meaning(check, severity)], "incident"
    assert Quarantine.objects.of(deployment).exists() is (leak and severity == "critical"), "quarantine"

    now = timezone.now()
    standing = {span.standing for span in statement_of(deployment, now - HOUR / 2, now).spans}
    assert (SpanStatus.LEAKING in standing) is leak, "exposure report"
    if incident is not None:
        assert SpanStatus.BOUNDED not in standing, "no hour of an incident is bounded"

    rows = Assessed.objects.filter(pk=deployment.pk).standings().rows
    cells = {key: cell for key, cell in rows[0].cells.items() if check in cell.item.checks}
    assert {cell.status for cell in cells.values()} <= {Status.FAIL}, "compliance"
    assert {cell.leak for cell in cells.values()} <= {leak}, "compliance"
    for key in cells:
        a_waiver(deployment, key)
    again = Assessed.objects.filter(pk=deployment.pk).standings().rows[0].cells
    hidden = {again[key].status is Status.WAIVED for key in cells}
    assert hidden <= {not leak}, "an approved exception hides no leak"

    status = status_of(Deployment.objects.get(pk=deployment.pk))
    assert status.verdict is Verdict.FAIL or check in checks.where("planned_only")
    row = FleetRow(deployment.pk, deployment.slug, "", "", status)
    assert (row.tier is Tier.LEAK) is leak, "fleet page"
    answer = traffic_gate.answer(deployment)
    if check not in traffic_gate.NOT_ASKED:
        assert answer.verdict is not Verdict.PASS, "gate"


def test_a_check_of_another_release_is_a_leak_where_it_says_critical() -> None:
    assert checks.meaning("next-years-check", "critical") is Meaning.LEAK
    assert checks.meaning("next-years-check", "high") is Meaning.CONFIGURATION


def test_items_come_from_the_checklist_alone() -> None:
    assert not any(hasattr(check, "items") for check in checks.CHECKS.values())
