"""Quarantines, fixes, overrides, releases and steps that are not what the ledger recorded: named, and never a pass."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result, Run
from kvaudit.server.incidents import opening, quarantine, restore, traffic_gate
from kvaudit.server.incidents.models import (
    ExternalResult,
    Fix,
    Incident,
    Override,
    Quarantine,
    Release,
    State,
    Transition,
)
from kvaudit.server.incidents.restore_facts import fingerprint_of, requirements_of
from kvaudit.server.ops.ledger import verify
from tests.server.api.states import a_state
from tests.server.incidents import builders

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident() -> Incident:
    return builders.an_incident()


def verified(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    code = verify(["verify"])
    said = capsys.readouterr().out
    assert code == (1 if said.startswith("Ledger broken") else 0)
    return said


def ended() -> None:
    Quarantine.objects.update(valid_to=timezone.now(), ended_by="ada", end_reason="Release 1 of incident 1")


def gone() -> None:
    Quarantine.objects.all().delete()


@pytest.mark.parametrize("tamper", [ended, gone])
def test_a_quarantine_that_nobody_released_closes_the_gate(incident, capsys, tamper):
    a_state(incident.deployment, "drift")
    assert verified(capsys).startswith("Ledger intact")
    tamper()
    answer = traffic_gate.answer(incident.deployment)
    assert any(
        reason.check == "record"
        and reason.verdict is Verdict.ERROR
        and "put under quarantine" in reason.summary
        for reason in answer.reasons
    )
    assert "put under quarantine, none says that it was released" in verified(capsys)


def test_a_quarantine_that_the_ledger_does_not_know(capsys):
    target = builders.a_target()
    Quarantine.objects.create(deployment=target, set_by="x", reason="y", valid_from=timezone.now())
    assert "the ledger does not know of it" in verified(capsys)


def test_one_that_came_back_is_noticed(incident, capsys):
    fixed(incident)
    passed(incident)
    restore.release(incident=incident, actor=builders.an_operator(incident.deployment))
    assert verified(capsys).startswith("Ledger intact")
    Quarantine.objects.update(valid_to=None)
    assert "says that it was released" in verified(capsys)


def fixed(incident: Incident) -> Fix:
    return restore.record_fix(
        incident=incident, actor=builders.an_operator(incident.deployment), description="the pool was raised"
    )


def passed(incident: Incident) -> None:
    """Both tests, as the gate wants them."""
    replay = restore.replay(incident=incident, actor=builders.an_operator(incident.deployment))
    answered = builders.rejection_measures(answered=builders.LEAKING_LENGTHS)
    builders.a_state(builders.a_result(incident.deployment, "rejection", run=replay.run, measures=answered))
    builders.the_internal_set(incident.deployment)


def met(incident: Incident) -> dict[str, bool]:
    return {requirement.key: requirement.met for requirement in requirements_of(incident)}


def test_tests_that_were_changed_do_not_restore(incident):
    fixed(incident)
    passed(incident)
    assert all(met(incident).values())
    assert "record" not in met(incident)
    Result.objects.filter(check_id="canary").update(measures={"changed": True})
    assert met(incident)["record"] is False
    with pytest.raises(restore.IncidentProblem, match="is not what entry"):
        restore.release(incident=incident, actor=builders.an_operator(incident.deployment))


def a_run_that_began_later(incident: Incident) -> None:
    Run.objects.exclude(verdict="fail").update(started_at=timezone.now())


def a_fix_that_was_earlier(incident: Incident) -> None:
    Fix.objects.update(at=timezone.now() - timedelta(days=30))


def a_fix_that_nobody_recorded(incident: Incident) -> None:
    Fix.objects.create(incident=incident, fixer=builders.an_operator(incident.deployment), description="x")


def an_external_result_that_nobody_uploaded(incident: Incident) -> None:
    from kvaudit.server.checklists.attestations import File, store

    ExternalResult.objects.create(
        incident=incident, uploader=builders.an_operator(incident.deployment), leaked=False, fingerprint="f",
        evidence=store(File("x", b"x", "text/plain")),
    )  # fmt: skip


def an_override_that_nobody_approved(incident: Incident) -> None:
    Override.objects.create(
        incident=incident, reason="x", fingerprint=fingerprint_of(incident.deployment), approved=True,
        requester=builders.an_operator(incident.deployment), decided_by=builders.an_operator(incident.deployment),
        note="y",
    )  # fmt: skip


@pytest.mark.parametrize(
    "forge",
    [
        a_run_that_began_later, a_fix_that_was_earlier, a_fix_that_nobody_recorded,
        an_external_result_that_nobody_uploaded, an_override_that_nobody_approved,
    ],
)  # fmt: skip
def test_what_nobody_did_does_not_restore(incident, forge):
    fixed(incident)
    passed(incident)
    forge(incident)
    assert met(incident)["record"] is False


def test_releases_and_steps_are_named(incident, capsys):
    fixed(incident)
    passed(incident)
    restore.release(incident=incident, actor=builders.an_operator(incident.deployment))
    Release.objects.update(grounds={})
    assert "Release" in verified(capsys)
    assert "is not what entry" in verified(capsys)


@pytest.mark.parametrize("change", ["reason", "at", "state"])
def test_a_step_that_was_changed_is_named(incident, capsys, change):
    if change == "state":
        Incident.objects.update(state=State.MITIGATED, mitigated_at=timezone.now())
        assert "its last step led to open" in verified(capsys)
        return
    Transition.objects.update(**{change: "x" if change == "reason" else timezone.now()})
    assert "The step of incident" in verified(capsys)


def test_what_incidents_do_by_themselves_is_in_order(incident, capsys):
    operator = builders.an_operator(incident.deployment)
    opening.consume()
    asked = restore.record_fix(incident=incident, actor=operator, description="pool raised")
    override = restore.request_override(incident=asked.incident, actor=operator, reason="no time")
    restore.decide_override(
        override=override,
        actor=builders.an_operator(incident.deployment, "approver"),
        approve=True,
        note="yes",
    )
    restore.release(incident=incident, actor=operator)
    other = opening.open_by_hand(
        deployment=incident.deployment,
        title="odd",
        severity="high",
        summary="",
        actor=operator,
        quarantine=True,
    )
    quarantine.quarantine(incident=other, actor=operator, reason="again")
    assert verified(capsys).startswith("Ledger intact")
    assert not any(reason.check == "record" for reason in traffic_gate.answer(incident.deployment).reasons)
