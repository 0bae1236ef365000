"""Impact out of a request log: what it can tell, and what it cannot."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.incidents import impact
from kvaudit.server.incidents.models import ImpactLine
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.inquiries.models import RequestLog, TenantCount
from tests.server.incidents.builders import an_incident, an_operator

pytestmark = pytest.mark.django_db


def a_log(incident, *, inside=155, problems=0, days=1):
    now = timezone.now()
    log = RequestLog.objects.create(
        deployment=incident.deployment, name="september.csv", sha256="ab" * 32, size=1, lines=1_000, requests=1_000,
        in_window=900, inside=inside, problem_count=problems, since=now - timedelta(days=days), until=now + timedelta(hours=1),
    )  # fmt: skip
    for number in range(3):
        TenantCount.objects.create(log=log, tenant=f"{number}" * 64, requests=300, inside=number)
    return log


def test_requests_are_an_estimate_of_responses_and_tenants_are_counted():
    incident = an_incident()
    a_log(incident)
    responses, tenants = impact.count_impact(incident=incident, actor=an_operator(incident.deployment))
    assert (responses.measure, responses.certainty) == ("responses", "estimated")
    assert "155 of 900 requests" in responses.statement
    assert (tenants.measure, tenants.certainty) == ("tenants", "known")
    assert tenants.statement.startswith("2 tenants")
    assert "SHA-256 abab" in tenants.source


def test_unread_lines_make_every_number_a_lower_bound():
    incident = an_incident()
    a_log(incident, problems=7)
    lines = impact.count_impact(incident=incident, actor=an_operator(incident.deployment))
    assert {line.certainty for line in lines} == {"estimated"}
    assert all("At least: 7 lines" in line.statement for line in lines)


def test_counting_again_replaces_what_was_counted():
    incident = an_incident()
    operator = an_operator(incident.deployment)
    a_log(incident, inside=1)
    impact.count_impact(incident=incident, actor=operator)
    a_log(incident, inside=2)
    impact.count_impact(incident=incident, actor=operator)
    held = ImpactLine.objects.current().filter(incident=incident)
    assert held.count() == 2
    assert held.get(measure="responses").statement.startswith("2 of 900")


def test_a_log_of_another_time_or_deployment_counts_nothing():
    incident, other = an_incident(), an_incident()
    a_log(other)
    log = a_log(incident)
    RequestLog.objects.filter(pk=log.pk).update(
        since=timezone.now() - timedelta(days=9), until=timezone.now() - timedelta(days=8)
    )
    with pytest.raises(IncidentProblem, match="exposure page"):
        impact.count_impact(incident=incident, actor=an_operator(incident.deployment))
