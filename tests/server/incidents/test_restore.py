"""Back to traffic: two independent tests on the configuration of today, or an override that stays visible."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Run
from kvaudit.server.checklists.attestations import File
from kvaudit.server.incidents import opening, quarantine, restore, traffic_gate
from kvaudit.server.incidents import transitions as moving
from kvaudit.server.incidents.models import Quarantine, State
from kvaudit.server.incidents.restore_facts import requirements_of
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
    runs_version,
    the_internal_set,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident():
    return an_incident(a_target(version="0.5.19"))


@pytest.fixture
def operator(incident):
    return an_operator(incident.deployment)


def fixed(incident, operator):
    runs_version(incident.deployment, "0.5.22")
    restore.record_fix(incident=incident, actor=operator, description="Upgraded to 0.5.22.")


def replayed(incident, operator, verdict="pass", lengths=LEAKING_LENGTHS):
    made = restore.replay(incident=incident, actor=operator)
    a_result(
        incident.deployment, "rejection", verdict, run=made.run, measures=rejection_measures(refused=lengths)
    )
    return made.run


def test_both_tests_release(incident, operator):
    fixed(incident, operator)
    run = replayed(incident, operator)
    the_internal_set(incident.deployment)
    made = restore.release(incident=incident, actor=operator)
    incident.refresh_from_db()
    assert (incident.state, made.released_by, made.override) == ("restored", operator, None)
    assert run in made.runs.all()
    assert all(requirement["met"] for requirement in made.grounds["requirements"])
    assert not Quarantine.objects.of(incident.deployment).exists()
    assert Quarantine.objects.get().ended_by == f"user:{operator.username}"
    assert Entry.objects.filter(kind="incident.released").count() == 1


def test_the_replay_asks_the_same_seed_and_lengths(incident, operator):
    Run.objects.update(seed=4_711)
    fixed(incident, operator)
    made = restore.replay(incident=incident, actor=operator)
    assert (made.run.seed, made.run.replayed_lengths) == (4_711, sorted(LEAKING_LENGTHS))
    assert (made.run.checks, made.run.kind, made.original) == (["rejection"], "active", made.run.retry_of)


@pytest.mark.parametrize("but", ["canary", "rejection", "pool", "version"])
def test_one_missing_test_keeps_it_closed(incident, operator, but):
    fixed(incident, operator)
    replayed(incident, operator)
    the_internal_set(incident.deployment, but=but)
    with pytest.raises(IncidentProblem, match=but):
        restore.release(incident=incident, actor=operator)
    assert Quarantine.objects.of(incident.deployment).exists()


def test_the_internal_set_does_not_stand_in_for_the_reproduction(incident, operator):
    fixed(incident, operator)
    the_internal_set(incident.deployment, measures=rejection_measures(refused=LEAKING_LENGTHS))
    with pytest.raises(IncidentProblem, match="not been replayed"):
        restore.release(incident=incident, actor=operator)


def test_a_reproduction_at_other_lengths_is_none(incident, operator):
    fixed(incident, operator)
    replayed(incident, operator, lengths=LEAKING_LENGTHS[:1])
    the_internal_set(incident.deployment)
    with pytest.raises(IncidentProblem, match="681,275"):
        restore.release(incident=incident, actor=operator)


def test_another_change_voids_the_tests(incident, operator):
    fixed(incident, operator)
    replayed(incident, operator)
    the_internal_set(incident.deployment)
    runs_version(incident.deployment, "0.5.23")
    with pytest.raises(IncidentProblem, match="closed"):
        restore.release(incident=incident, actor=operator)


def test_tests_before_the_fix_do_not_count(incident, operator):
    the_internal_set(incident.deployment)
    restore.record_fix(incident=incident, actor=operator, description="Nothing but words.")
    replayed(incident, operator)
    with pytest.raises(IncidentProblem, match="canary"):
        restore.release(incident=incident, actor=operator)


def test_failing_again_after_the_release_opens_and_quarantines_again(incident, operator):
    fixed(incident, operator)
    replayed(incident, operator)
    the_internal_set(incident.deployment)
    restore.release(incident=incident, actor=operator)
    a_leak(incident.deployment)
    opening.consume()
    incident.refresh_from_db()
    assert (incident.state, incident.restored_at) == ("open", None)
    assert Quarantine.objects.of(incident.deployment).exists()
    with pytest.raises(IncidentProblem):
        restore.release(incident=incident, actor=operator)


def test_a_fix_that_does_not_hold_opens_it_again(incident, operator):
    fixed(incident, operator)
    a_state(a_result(incident.deployment, "canary", "fail", measures={"hits": [{"tokens": 681_274}]}))
    opening.consume()
    incident.refresh_from_db()
    assert incident.state == "open"


def test_an_external_result_comes_from_somebody_else(incident, operator):
    fixed(incident, operator)
    given = {
        "file": File("poc.txt", b"no foreign text in 50"),
        "leaked": False,
        "description": "poc.py, 50 rounds",
    }
    with pytest.raises(PermissionDenied, match="other than the fixer"):
        restore.upload_result(incident=incident, actor=operator, **given)
    other = an_operator(incident.deployment)
    made = restore.upload_result(incident=incident, actor=other, **given)
    assert made.evidence_id in Entry.objects.filter(kind="incident.external_result").values_list(
        "digest", flat=True
    )
    assert [requirement.key for requirement in requirements_of(incident)][2] == "external"


def test_an_override_needs_a_second_person_and_stays_visible(incident, operator):
    restore.mitigate(incident=incident, actor=operator, reason="No long prompts are accepted.")
    asked = restore.request_override(incident=incident, actor=operator, reason="A customer is down.")
    with pytest.raises(PermissionDenied):
        restore.decide_override(override=asked, actor=operator, approve=True, note="me")
    requester = an_operator(incident.deployment, "approver")
    with pytest.raises(IncidentProblem, match="closed"):
        restore.release(incident=incident, actor=operator)
    restore.decide_override(override=asked, actor=requester, approve=True, note="Edge limit holds.")
    made = restore.release(incident=incident, actor=operator)
    assert made.override == asked
    assert not all(requirement["met"] for requirement in made.grounds["requirements"])
    shown = type(incident).objects.listed().get(pk=incident.pk)
    assert (shown.state, shown.overridden) == ("restored", True)


def test_an_override_is_for_one_configuration_and_one_time(incident, operator):
    restore.mitigate(incident=incident, actor=operator, reason="Edge limit.")
    asked = restore.request_override(incident=incident, actor=operator, reason="r")
    approver = an_operator(incident.deployment, "approver")
    restore.decide_override(override=asked, actor=approver, approve=True, note="n")
    runs_version(incident.deployment, "0.5.23")
    with pytest.raises(IncidentProblem, match="closed"):
        restore.release(incident=incident, actor=operator)


def test_a_requester_does_not_approve_even_as_approver(incident):
    approver = an_operator(incident.deployment, "approver")
    restore.mitigate(incident=incident, actor=approver, reason="r")
    asked = restore.request_override(incident=incident, actor=approver, reason="r")
    with pytest.raises(PermissionDenied, match="second person"):
        restore.decide_override(override=asked, actor=approver, approve=True, note="n")


def test_restored_needs_a_release(incident, operator):
    restore.mitigate(incident=incident, actor=operator, reason="r")
    with pytest.raises(IncidentProblem, match="restore gate"):
        moving.move(incident=moving.locked(incident), to=State.RESTORED, actor=operator, reason="please")


def test_strangers_and_readers_do_nothing(incident):
    for user in (an_operator(incident.deployment, "auditor"), a_user(team=a_target().team, role="admin")):
        for act in (
            lambda user=user: restore.mitigate(incident=incident, actor=user, reason="r"),
            lambda user=user: restore.record_fix(incident=incident, actor=user, description="d"),
            lambda user=user: restore.request_override(incident=incident, actor=user, reason="r"),
            lambda user=user: restore.release(incident=incident, actor=user),
            lambda user=user: quarantine.quarantine(incident=incident, actor=user, reason="r"),
        ):
            with pytest.raises(PermissionDenied):
                act()


def test_the_gate_endpoint_refuses_a_quarantined_deployment_whatever_else(incident):
    answer = traffic_gate.answer(incident.deployment)
    assert answer.verdict is Verdict.FAIL
    assert answer.reasons[0].verdict is Verdict.FAIL
    assert any(
        reason.check == "quarantine" and f"incident {incident.pk}" in reason.summary
        for reason in answer.reasons
    )
    Quarantine.objects.update(valid_to=timezone.now())
    assert not any(
        reason.check == "quarantine" for reason in traffic_gate.answer(incident.deployment).reasons
    )
