"""Attestations, waivers and own items: who may, what is refused with a sentence, what is recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.utils import timezone

from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.store import body_of
from kvaudit.server.audits.models import Evidence
from kvaudit.server.checklists import time_limits
from kvaudit.server.checklists.attestations import File
from kvaudit.server.checklists.models import Assessed, Attestation, OwnItem, Waiver
from kvaudit.server.checklists.services import (
    ClaimProblem,
    ItemProblem,
    ItemSpec,
    approve_waiver,
    attest,
    change_item,
    create_item,
    end_attestation,
    end_waiver,
    refuse_waiver,
    request_waiver,
    retire_item,
)
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.models import Entry
from tests.factories import a_deployment, a_user
from tests.server.web import builders

pytestmark = pytest.mark.django_db

MONTH = timedelta(days=30)


@dataclass
class Stage:
    deployment: Deployment
    viewer: User
    operator: User
    approver: User
    stranger: User


@pytest.fixture
def stage() -> Stage:
    deployment = a_deployment()
    team = deployment.team
    return Stage(
        deployment,
        a_user(team=team, role="auditor"),
        a_user(team=team, role="operator"),
        a_user(team=team, role="approver"),
        a_user(team=a_deployment().team, role="admin"),
    )


def status(stage: Stage, item: str) -> str:
    return Assessed.objects.filter(pk=stage.deployment.pk).standings().rows[0].cells[item].status.value


def ask(stage: Stage, actor: Any = None, **fields: Any) -> Waiver:
    given = {"item": "1", "reason": "Hardware arrives in May.", "expires_at": timezone.now() + MONTH,
             "deployment": stage.deployment, **fields}  # fmt: skip
    return request_waiver(actor=actor or stage.operator, **given)


def state_it(stage: Stage, actor: Any = None, **fields: Any) -> Attestation:
    given = {"item": "D", "statement": "Slots are reset.", "expires_at": timezone.now() + MONTH,
             "deployment": stage.deployment, "link": "https://wiki.example.org/x", **fields}  # fmt: skip
    return attest(actor=actor or stage.operator, **given)


def test_a_waiver_takes_two_people_and_each_act_is_recorded(stage: Stage) -> None:
    waiver = ask(stage)
    assert status(stage, "1") == "inconclusive"
    approve_waiver(waiver=waiver, actor=stage.approver, note="Agreed.")
    assert status(stage, "1") == "waived"
    assert Waiver.objects.get().state() == "in force"
    end_waiver(waiver=waiver, actor=stage.operator, reason="Arrived early.")
    assert status(stage, "1") == "inconclusive"
    assert [entry.kind for entry in Entry.objects.filter(kind__startswith="waiver")] == [
        "waiver.requested",
        "waiver.approved",
        "waiver.ended",
    ]
    assert (
        Entry.objects.filter(subject=f"deployment:{stage.deployment.slug} item:1 waiver:{waiver.pk}").count()
        == 3
    )
    assert all(entry.digest for entry in Entry.objects.filter(kind__startswith="waiver"))


def test_nobody_approves_what_they_asked_for_whatever_their_role(stage: Stage) -> None:
    waiver = ask(stage, actor=stage.approver)
    with pytest.raises(PermissionDenied, match="second person"):
        approve_waiver(waiver=waiver, actor=stage.approver)
    with pytest.raises(IntegrityError), transaction.atomic():
        Waiver.objects.update(decision="approved", decided_by=stage.approver, valid_from=timezone.now())
    assert status(stage, "1") == "inconclusive"


@pytest.mark.parametrize("who", ["viewer", "stranger", "operator"])
def test_only_an_approver_decides(stage: Stage, who: str) -> None:
    waiver = ask(stage, actor=a_user(team=stage.deployment.team, role="operator"))
    for act in (approve_waiver, refuse_waiver):
        with pytest.raises(PermissionDenied):
            act(waiver=waiver, actor=getattr(stage, who), note="x")
    assert Waiver.objects.get().decision == "pending"


@pytest.mark.parametrize("who", ["viewer", "stranger"])
def test_only_operators_ask_and_attest(stage: Stage, who: str) -> None:
    for act in (ask, state_it):
        with pytest.raises(PermissionDenied):
            act(stage, actor=getattr(stage, who))
    with pytest.raises(PermissionDenied):
        ask(stage, actor="system:beat")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"item": "99"}, "no checklist item"),
        ({"reason": "  "}, "Say why"),
        ({"expires_at": timezone.now() - MONTH}, "in the future"),
        ({"expires_at": timezone.now() + timedelta(days=91)}, "90 days at the latest"),
        ({"deployment": None}, "one deployment or one team"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_a_sentence(
    stage: Stage, fields: Any, sentence: str
) -> None:
    with pytest.raises(ClaimProblem, match=sentence):
        ask(stage, **fields)
    assert not Waiver.objects.exists()


def test_a_leak_cannot_even_be_asked_for_and_not_approved_later(stage: Stage) -> None:
    waiver = ask(stage, item="4")
    builders.a_state(stage.deployment, {"canary": "fail"})
    with pytest.raises(ClaimProblem, match="verified leak"):
        approve_waiver(waiver=waiver, actor=stage.approver)
    refuse_waiver(waiver=waiver, actor=stage.approver, note="It leaks.")
    with pytest.raises(ClaimProblem, match="verified leak"):
        ask(stage, item="4")
    assert status(stage, "4") == "fail"


def test_a_decision_is_made_once_and_in_time(stage: Stage) -> None:
    waiver = ask(stage)
    with pytest.raises(ClaimProblem, match="already waits"):
        ask(stage)
    refuse_waiver(waiver=waiver, actor=stage.approver, note="No.")
    with pytest.raises(ClaimProblem, match="already decided"):
        approve_waiver(waiver=waiver, actor=stage.approver)
    late = ask(stage)
    Waiver.objects.filter(pk=late.pk).update(
        requested_at=timezone.now() - MONTH, expires_at=timezone.now() - timedelta(seconds=1)
    )
    assert Waiver.objects.get(pk=late.pk).state() == "lapsed"
    with pytest.raises(ClaimProblem, match="passed before anybody decided"):
        approve_waiver(waiver=late, actor=stage.approver)
    with pytest.raises(ClaimProblem, match="Say why it is refused"):
        refuse_waiver(waiver=ask(stage), actor=stage.approver, note=" ")


def test_the_maximum_counts_from_the_approval_too(stage: Stage, settings: Any) -> None:
    waiver = ask(stage)
    settings.WAIVER_LONGEST_DAYS = 7
    with pytest.raises(ClaimProblem, match="7 days"):
        approve_waiver(waiver=waiver, actor=stage.approver)


def test_a_renewal_replaces_and_the_old_row_keeps_what_it_said(stage: Stage) -> None:
    first = approve_waiver(waiver=ask(stage), actor=stage.approver)
    second = approve_waiver(waiver=ask(stage, reason="Later than planned."), actor=stage.approver)
    first.refresh_from_db()
    assert (first.end_reason, first.valid_to) == ("replaced", second.valid_from)
    assert first.reason == "Hardware arrives in May."
    assert status(stage, "1") == "waived"


def test_a_waiver_for_a_team_covers_its_deployments_alone(stage: Stage) -> None:
    theirs = a_deployment()
    waiver = ask(stage, deployment=None, team=stage.deployment.team)
    approve_waiver(waiver=waiver, actor=stage.approver)
    assert status(stage, "1") == "waived"
    assert status(replace(stage, deployment=theirs), "1") == "inconclusive"


def test_an_attestation_keeps_its_file_by_content(stage: Stage) -> None:
    body = b"%PDF not really \x00\xff"
    made = state_it(stage, file=File("../../etc/passwd\x00", body, "text/html"), link="")
    assert made.evidence is not None
    assert body_of(made.evidence) == body
    assert "\x00" not in made.evidence_name
    state_it(stage, file=File("again", body))
    assert Evidence.objects.count() == 1
    assert status(stage, "D") == "attested"
    old, new = Attestation.objects.order_by("pk")
    assert (old.valid_to, old.end_reason) == (new.valid_from, "replaced")
    assert Entry.objects.filter(kind="attestation.made").count() == 2


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"item": "1"}, "cannot stand in"),
        ({"item": "99"}, "no checklist item"),
        ({"statement": "\n"}, "Say what you attest"),
        ({"link": ""}, "needs evidence"),
        ({"link": "javascript:alert(1)"}, "http or https"),
        ({"link": "https://x.example.org/" + "y" * 600}, "500 characters"),
        ({"file": File("x", b"")}, "empty"),
        ({"file": File("x", b"x" * (time_limits.LARGEST_EVIDENCE + 1))}, "at most"),
        ({"expires_at": timezone.now() + timedelta(days=400)}, "366 days"),
    ],
)
def test_a_statement_that_cannot_be_is_refused_with_a_sentence(
    stage: Stage, fields: Any, sentence: str
) -> None:
    with pytest.raises(ClaimProblem, match=sentence):
        state_it(stage, **fields)
    assert not Attestation.objects.exists()


def test_a_statement_is_taken_back_by_its_author_or_an_approver(stage: Stage) -> None:
    made = state_it(stage)
    other = a_user(team=stage.deployment.team, role="operator")
    for nobody in (other, stage.stranger, stage.viewer):
        with pytest.raises(PermissionDenied):
            end_attestation(attestation=made, actor=nobody, reason="x")
    with pytest.raises(ClaimProblem, match="Say why"):
        end_attestation(attestation=made, actor=stage.operator, reason="")
    end_attestation(attestation=made, actor=stage.approver, reason="The slots moved.")
    assert status(stage, "D") == "inconclusive"
    with pytest.raises(ClaimProblem, match="ended already"):
        end_attestation(attestation=made, actor=stage.operator, reason="x")


SPEC = ItemSpec(key="K1", title="Salted", rule="The gateway salts.", checks=["prefix"])


def test_own_items_are_versions(stage: Stage) -> None:
    team = stage.deployment.team
    made = create_item(team=team, spec=SPEC, actor=stage.operator)
    changed = change_item(item=made, spec=replace(SPEC, checks=["pool"]), actor=stage.operator)
    assert (changed.version, changed.series) == (2, made.series)
    made.refresh_from_db()
    assert (list(made.checks), made.valid_to) == (["prefix"], changed.valid_from)
    with pytest.raises(ItemProblem, match="key of an item stays"):
        change_item(item=changed, spec=replace(SPEC, key="K2"), actor=stage.operator)
    retire_item(item=changed, actor=stage.operator)
    assert not OwnItem.objects.current().exists()
    with pytest.raises(ItemProblem, match="retired"):
        change_item(item=changed, spec=SPEC, actor=stage.operator)
    kinds = [entry.kind for entry in Entry.objects.filter(kind__startswith="item.")]
    assert kinds == ["item.made", "item.changed", "item.retired"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"key": "1"}, "begins with a letter"),
        ({"key": "A"}, "shipped checklist"),
        ({"key": "Q"}, "longer key, like Q1"),
        ({"key": "k 1"}, "begins with a letter"),
        ({"title": " "}, "title and a rule"),
        ({"checks": ["nonsense"]}, "no check called 'nonsense'"),
        ({"checks": [], "attestable": False}, "nothing else could ever meet it"),
        ({"applies_to": "moon"}, "unified"),
    ],
)
def test_an_item_that_cannot_be_is_refused_with_a_sentence(stage: Stage, changes: Any, sentence: str) -> None:
    with pytest.raises(ItemProblem, match=sentence):
        create_item(team=stage.deployment.team, spec=replace(SPEC, **changes), actor=stage.operator)


def test_own_items_are_edited_by_operators_of_the_team(stage: Stage) -> None:
    for nobody in (stage.viewer, stage.stranger):
        with pytest.raises(PermissionDenied):
            create_item(team=stage.deployment.team, spec=SPEC, actor=nobody)
    create_item(team=stage.deployment.team, spec=SPEC, actor=stage.operator)
    with pytest.raises(ItemProblem, match="already has"):
        create_item(team=stage.deployment.team, spec=SPEC, actor=stage.operator)
