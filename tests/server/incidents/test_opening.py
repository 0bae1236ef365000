"""Incidents open from changes of state, one per deployment and kind while it lasts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from kvaudit.server.incidents import opening, result_meaning
from kvaudit.server.incidents.models import Incident, Kind, Quarantine
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.ledger.models import Entry
from tests.factories import a_user
from tests.server.incidents.builders import (
    LEAKING_LENGTHS,
    a_leak,
    a_result,
    a_state,
    a_target,
    an_incident,
    an_operator,
    rejection_measures,
)
from tests.waiting import PATIENCE

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("check", "severity", "kind"),
    [
        ("canary", "critical", Kind.LEAK),
        ("rejection", "critical", Kind.LEAK),
        ("coherence", "critical", Kind.LEAK),
        ("prefix", "high", Kind.BOUNDARY),
        ("concurrency", "high", Kind.BOUNDARY),
        ("canary", "high", Kind.BOUNDARY),
        ("rejection", "medium", Kind.BOUNDARY),
        ("rejection", "", Kind.BOUNDARY),
        ("concurrency", "critical", Kind.LEAK),
        ("session", "critical", Kind.LEAK),
        ("session", "high", Kind.BOUNDARY),
        ("prefill", "critical", Kind.LEAK),
        ("pool", "critical", None),
        ("version", "high", None),
        ("accounting", "high", None),
        ("prefix", "medium", None),
    ],
)
def test_what_opens_which_incident(check, severity, kind):
    assert result_meaning.kind_of(check, severity) is kind


@pytest.mark.parametrize(("heard_late", "standing"), [(True, "open"), (False, "restored")])
def test_a_fail_heard_of_after_the_restoration_comes_back_if_it_stands(heard_late, standing):
    """The restoration did not know of it, whatever the moment at which it was seen."""
    deployment = a_target()
    made = an_incident(deployment, at=timezone.now() - timedelta(hours=3))
    now = timezone.now()
    Incident.objects.filter(pk=made.pk).update(state="restored", restored_at=now - timedelta(minutes=5))
    a_state(a_result(deployment, "rejection", at=now - timedelta(minutes=20)), before="fail")
    late = a_result(deployment, "rejection", "fail", at=now - timedelta(minutes=10))
    if heard_late:
        a_state(late, before="pass")
    opening.consume()
    made.refresh_from_db()
    assert made.state == standing
    assert made.citations.filter(result=late).exists()


def test_a_leak_opens_an_incident_with_what_is_known():
    deployment = a_target(version="0.5.19")
    day = timedelta(days=1)
    a_state(a_result(deployment, "rejection", at=timezone.now() - day))
    made = an_incident(deployment)
    result = made.citations.get().result
    assert (made.severity, made.state, made.opened_by) == ("critical", "open", "system:incidents")
    assert (made.affected_from, made.affected_to) == (min(LEAKING_LENGTHS), max(LEAKING_LENGTHS))
    assert (made.roles, made.builds) == (["prefill"], ["sglang 0.5.19"])
    assert made.window_check == "rejection"
    assert made.window_to == result.observed_at
    assert timedelta(hours=23) < made.window_to - made.window_from < timedelta(hours=25)
    assert Quarantine.objects.of(deployment).get().incident == made
    assert Entry.objects.filter(kind="incident.open", subject__startswith=f"incident:{made.pk} ").count() == 1


def test_without_an_earlier_pass_the_window_has_no_beginning():
    assert an_incident().window_from is None


def test_two_failing_checks_at_the_same_second_open_one_incident():
    deployment, now = a_target(), timezone.now()
    a_leak(deployment, at=now)
    a_state(a_result(deployment, "canary", "fail", at=now, measures={"hits": [{"tokens": 700_000}]}))
    opening.consume()
    made = Incident.objects.get(deployment=deployment)
    assert sorted(opening.checks_of(made)) == ["canary", "rejection"]
    assert made.affected_to == 700_000


def test_the_database_refuses_a_second_one_of_a_kind():
    made = an_incident()
    with pytest.raises(IntegrityError), transaction.atomic():
        Incident.objects.create(
            deployment=made.deployment, kind="leak", title="x", severity="high", opened_by="somebody"
        )


def test_a_boundary_is_an_incident_of_its_own_and_quarantines_nobody():
    deployment = a_target()
    a_state(
        a_result(
            deployment,
            "rejection",
            "fail",
            severity="medium",
            measures={"rungs": [{"tokens": 9_000, "empty": 3}]},
        )
    )
    opening.consume()
    made = Incident.objects.get()
    assert (made.kind, made.severity, made.affected_from) == ("boundary", "medium", 9_000)
    assert not Quarantine.objects.exists()


def test_coming_twice_changes_nothing():
    made = an_incident()
    for _ in range(3):
        assert opening.consume() == 0
    assert Incident.objects.get() == made
    assert (made.citations.count(), made.transitions.count()) == (1, 1)


def test_a_change_that_became_visible_late_is_not_lost():
    first = a_leak(a_target())
    early = a_state(a_result(a_target(), "pool"))  # an id between, which is not a fail yet
    a_leak(a_target())
    assert opening.consume() == 2
    type(early).objects.filter(pk=early.pk).update(after="fail", check_id="coherence")
    assert opening.consume() == 1
    assert first.pk


def test_a_check_that_goes_on_failing_attaches_without_a_change_of_state():
    made = an_incident()
    later = a_result(
        made.deployment, "rejection", "fail", measures=rejection_measures(leaking=[680_000, 690_000])
    )
    opening.consume()
    made.refresh_from_db()
    assert made.citations.count() == 2
    assert made.last_evidence_at == later.observed_at
    assert (made.affected_from, made.affected_to) == (680_000, 690_000)


def test_severity_rises_and_never_falls():
    deployment, shown = a_target(), []
    for check, severity in (("rejection", "medium"), ("canary", "high"), ("coherence", "medium")):
        a_state(a_result(deployment, check, "fail", severity=severity), before="pass")
        opening.consume()
        made = Incident.objects.get(deployment=deployment)
        shown.append((made.severity, made.citations.count()))
    assert shown == [("medium", 1), ("high", 2), ("high", 3)]


def test_by_hand():
    deployment = a_target()
    operator = an_operator(deployment)
    made = opening.open_by_hand(
        deployment=deployment,
        title=" Odd \n answers ",
        severity="high",
        summary="",
        actor=operator,
        quarantine=True,
    )
    assert (made.kind, made.title, made.opened_by) == ("other", "Odd answers", f"user:{operator.username}")
    assert Quarantine.objects.of(deployment).get().set_by == f"user:{operator.username}"


@pytest.mark.parametrize("wrong", [{"title": " "}, {"severity": "awful"}, {"affected_from": 0}])
def test_by_hand_with_nonsense(wrong):
    deployment = a_target()
    given = {"title": "t", "severity": "high", "summary": "", **wrong}
    with pytest.raises(IncidentProblem):
        opening.open_by_hand(deployment=deployment, actor=an_operator(deployment), **given)


def test_who_may_open_one():
    deployment = a_target()
    for user in (an_operator(deployment, "auditor"), a_user(team=a_target().team, role="admin")):
        with pytest.raises(PermissionDenied):
            opening.open_by_hand(deployment=deployment, title="t", severity="low", summary="", actor=user)


def test_where_a_prompt_stopped_the_server_no_step_advises_to_repeat_it():
    steps = result_meaning.first_steps(["rejection"], [], ["Restart the deployment."], stopped=True)
    assert steps[0] == "Restart the deployment."
    assert not any("again" in step for step in steps)
    assert "an operator has resumed" in steps[-1]


def test_first_steps_name_the_length_once():
    steps = result_meaning.first_steps(["rejection"], [700, 681], ["Do this.", "Do this.", ""])
    assert steps[0] == "Do this."
    assert "681 tokens" in steps[1]
    assert len(steps) == len(set(steps))


@pytest.mark.django_db(transaction=True)
def test_two_consumers_at_once_open_one_incident():
    """The second does not wait for the first: it finds the cursor taken, and nothing to do."""
    deployment = a_target()
    a_leak(deployment)
    a_state(a_result(deployment, "canary", "fail", measures={"hits": [{"tokens": 700_000}]}))
    start = Barrier(4)

    def consume(_):
        try:
            start.wait(PATIENCE)
            return opening.consume()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as several:
        counts = list(several.map(consume, range(4)))
    assert sum(counts) == 2
    made = Incident.objects.get()
    assert (made.citations.count(), made.transitions.count()) == (2, 1)
