"""Writing and closing: what a postmortem needs, what a closed one refuses, and action items that follow
what enforces them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.server.audits.models import CheckState
from kvaudit.server.checklists.models import Waiver
from kvaudit.server.incidents import action_enforcement, opening, postmortem, restore
from kvaudit.server.incidents.models import ImpactLine
from kvaudit.server.incidents.models.narrative import ActionState
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.ledger.models import Entry
from tests.factories import a_user
from tests.server.incidents.builders import (
    LEAKING_LENGTHS,
    a_result,
    a_state,
    an_incident,
    an_operator,
    rejection_measures,
    runs_version,
    the_internal_set,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident():
    return an_incident()


@pytest.fixture
def operator(incident):
    return an_operator(incident.deployment)


def an_action(incident, operator, enforced_by="check:pool"):
    return postmortem.add_action(
        incident=incident,
        actor=operator,
        title="Gate",
        owner=operator,
        due=timezone.now().date(),
        enforced_by=enforced_by,
    )


def written(incident, operator):
    postmortem.write_sections(
        incident=incident, actor=operator, texts=dict.fromkeys(postmortem.SECTIONS, "x")
    )
    postmortem.add_cause(incident=incident, actor=operator, text="c")
    for measure in ("responses", "tenants", "lengths"):
        postmortem.put_impact(
            incident=incident, actor=operator, measure=measure, certainty="unknown", statement="not known"
        )
    return an_action(incident, operator)


def restored(incident, operator):
    runs_version(incident.deployment, "0.5.22")
    restore.record_fix(incident=incident, actor=operator, description="d")
    made = restore.replay(incident=incident, actor=operator)
    a_result(
        incident.deployment, "rejection", run=made.run, measures=rejection_measures(refused=LEAKING_LENGTHS)
    )
    the_internal_set(incident.deployment)
    restore.release(incident=incident, actor=operator)
    incident.refresh_from_db()


def test_writing_alone_does_not_close(incident, operator):
    written(incident, operator)
    with pytest.raises(IncidentProblem, match="fix is not proved"):
        postmortem.close(incident=incident, actor=operator)


def test_a_fix_alone_does_not_close(incident, operator):
    restored(incident, operator)
    said = " ".join(postmortem.hindrances(incident))
    for missing in ("Summary", "Lessons", "No cause", "responses", "tenants", "lengths", "no action item"):
        assert missing in said


def test_both_close_and_then_it_is_not_rewritten(incident, operator):
    restored(incident, operator)
    written(incident, operator)
    closed = postmortem.close(incident=incident, actor=operator)
    assert closed.state == "closed"
    assert Entry.objects.filter(kind="incident.closed").count() == 1
    with pytest.raises(IncidentProblem, match="not rewritten"):
        postmortem.write_sections(incident=closed, actor=operator, texts={"summary": "other"})


def test_two_causes_need_their_overlap(incident, operator):
    restored(incident, operator)
    written(incident, operator)
    postmortem.write_sections(incident=incident, actor=operator, texts={"overlap": ""})
    incident.refresh_from_db()
    assert postmortem.hindrances(incident) == []
    postmortem.add_cause(incident=incident, actor=operator, text="another")
    assert "How the causes combined" in " ".join(postmortem.hindrances(incident))


def test_known_needs_a_source_and_unknown_is_a_statement(incident, operator):
    given = {"incident": incident, "actor": operator, "measure": "responses", "statement": "155 responses"}
    with pytest.raises(IncidentProblem, match="source"):
        postmortem.put_impact(certainty="known", **given)
    first = postmortem.put_impact(certainty="unknown", **given)
    second = postmortem.put_impact(certainty="known", source="request log", replaces=first, **given)
    assert second.series == first.series
    assert ImpactLine.objects.current().get() == second
    assert ImpactLine.objects.count() == 2


def test_done_only_while_what_enforces_it_is_green(incident, operator):
    item = an_action(incident, operator)
    with pytest.raises(IncidentProblem, match="never ran"):
        postmortem.step_action(item=item, to="done", actor=operator, reason="")
    a_state(a_result(incident.deployment, "pool"))
    done = postmortem.step_action(item=item, to="done", actor=operator, reason="")
    assert done.state == ActionState.DONE
    CheckState.objects.filter(check_id="pool").update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not action_enforcement.enforcements(incident.deployment, ["check:pool"])["check:pool"].green


@pytest.mark.parametrize(
    ("enforced_by", "failing"), [("check:pool", "pool"), ("item:1", "pool"), ("item:4", "canary")]
)
def test_it_reopens_by_itself_when_that_fails(incident, operator, enforced_by, failing):
    item = an_action(incident, operator, enforced_by)
    type(item).objects.update(state=ActionState.DONE)
    opening.consume()
    item.refresh_from_db()
    assert item.state == ActionState.DONE
    a_state(a_result(incident.deployment, failing, "fail"), before="pass")
    opening.consume()
    item.refresh_from_db()
    assert item.state == ActionState.REOPENED
    assert failing in item.changes.last().reason


def test_another_deployments_fail_reopens_nothing(incident, operator):
    item = an_action(incident, operator)
    type(item).objects.update(state=ActionState.DONE)
    other = an_incident().deployment
    a_state(a_result(other, "pool", "fail"))
    opening.consume()
    item.refresh_from_db()
    assert item.state == ActionState.DONE


def test_a_waiver_is_not_green(incident, operator):
    a_state(a_result(incident.deployment, "pool", "inconclusive"))
    now = timezone.now()
    Waiver.objects.create(
        deployment=incident.deployment, item="1", reason="r", requester=operator, requested_at=now,
        decision="approved", decided_by=a_user(), decided_at=now, valid_from=now, expires_at=now + timedelta(days=1),
    )  # fmt: skip
    found = action_enforcement.enforcements(incident.deployment, ["item:1"])["item:1"]
    assert (found.green, found.sentence) == (False, "item 1 is waived")


@pytest.mark.parametrize("wrong", [{"enforced_by": "check:nothing"}, {"enforced_by": ""}, {"title": " "}])
def test_an_action_item_is_tied_to_something_that_exists(incident, operator, wrong):
    given = {"title": "t", "owner": operator, "due": timezone.now().date(), "enforced_by": "item:5", **wrong}
    with pytest.raises(IncidentProblem):
        postmortem.add_action(incident=incident, actor=operator, **given)


def test_an_owner_belongs_to_the_team(incident, operator):
    with pytest.raises(IncidentProblem, match="not a member"):
        postmortem.add_action(
            incident=incident,
            actor=operator,
            title="t",
            owner=a_user(),
            due=timezone.now().date(),
            enforced_by="item:5",
        )


def test_readers_do_not_write(incident):
    reader = an_operator(incident.deployment, "auditor")
    with pytest.raises(PermissionDenied):
        postmortem.write_sections(incident=incident, actor=reader, texts={"summary": "x"})
    with pytest.raises(PermissionDenied):
        postmortem.add_cause(incident=incident, actor=reader, text="x")
