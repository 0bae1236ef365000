"""Four eyes on a session API: who may approve, exactly what, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from kvaudit.auditor.prober.session_wire import session_for
from kvaudit.server.fleet.import_file import ImportOutcome, import_fleet
from kvaudit.server.fleet.models import Deployment, SessionApproval
from kvaudit.server.fleet.session_approval import (
    ApprovalProblem,
    approval_of,
    approve_session,
    digest_of_session,
    withdraw_approval,
)
from kvaudit.server.ledger.models import Entry
from tests import factories
from tests.factories import loaded_target

pytestmark = pytest.mark.django_db

FLEET = """\
schema: kvaudit.fleet/1
deployments:
  - slug: game
    team: red
    nodes: [{name: n, url: "http://10.0.0.1:80"}]
    session:
      url: http://10.0.0.2:80
      steps:
        claim: {method: POST, path: /claim, body: {size: "{{size}}"}, capture: {id: /id}}
        seed: {method: PUT, path: "/s/{{id}}", body: {text: "{{marker}}"}}
        read: {method: GET, path: "/s/{{id}}"}
        write: {method: PUT, path: "/s/{{id}}", body: {text: "{{marker}}"}}
        end: {method: DELETE, path: "/s/{{id}}"}
"""


@pytest.fixture
def red() -> Any:
    return factories.a_team("red")


def imported(actor: Any, text: str = FLEET) -> ImportOutcome:
    outcome = import_fleet(text, "yaml", actor, False)
    assert outcome.problems == ()
    return outcome


def game() -> Deployment:
    return Deployment.objects.get(slug="game")


def approve(user: Any, digest: str = "") -> SessionApproval:
    deployment = game()
    return approve_session(
        deployment=deployment, digest=digest or digest_of_session(deployment.session), actor=user
    )


def test_new_steps_wait_and_the_import_says_so(red: Any) -> None:
    author = factories.a_user(team=red, role="operator")
    outcome = imported(author)
    assert any("second person" in note for note in outcome.notes)
    target = loaded_target(game())
    assert target.session is None
    wire, why = session_for(target)
    assert wire is None
    assert "not approved" in why


@pytest.mark.parametrize("role", ["approver", "admin"])
def test_an_approver_who_did_not_bring_them_in_approves(red: Any, role: str) -> None:
    imported(factories.a_user(team=red, role="operator"))
    approver = factories.a_user(team=red, role=role)
    approve(approver)
    assert loaded_target(game()).session is not None
    assert Entry.objects.filter(kind="session.approved", subject="deployment:game").count() == 1


@pytest.mark.parametrize("role", ["approver", "admin"])
def test_nobody_approves_what_they_brought_in(red: Any, role: str) -> None:
    author = factories.a_user(team=red, role=role)
    imported(author)
    with pytest.raises(PermissionDenied, match="second person"):
        approve(author)
    assert loaded_target(game()).session is None


@pytest.mark.parametrize("role", ["viewer", "auditor", "operator"])
def test_other_roles_do_not(red: Any, role: str) -> None:
    imported("command:fleet")
    with pytest.raises(PermissionDenied):
        approve(factories.a_user(team=red, role=role))
    with pytest.raises(PermissionDenied):
        approve(factories.a_user(team=factories.a_team("blue"), role="admin"))
    with pytest.raises(PermissionDenied):
        approve("command:anything")


CHANGES = {
    "address": ("http://10.0.0.2:80", "http://10.0.0.2:2375"),
    "method": ("method: GET", "method: DELETE"),
    "path": ("path: /claim", "path: /containers/create"),
    "body": ('text: "{{marker}}"', 'text: "{{marker}}", more: x'),
    "capture": ("id: /id", "id: /other"),
    "pool": ("    session:\n", "    session:\n      pool: {path: /secrets, capacity: /size}\n"),
    "wait": ("    session:\n", "    session:\n      wait: 5s\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_needs_a_new_word(red: Any, change: str) -> None:
    imported(factories.a_user(team=red, role="operator"))
    approver, other = (factories.a_user(team=red, role="approver") for _ in range(2))
    approve(approver)
    imported(approver, FLEET.replace(*CHANGES[change]))
    assert loaded_target(game()).session is None
    assert approval_of(game()) is None
    with pytest.raises(PermissionDenied):  # now it is the approver's own
        approve(approver)
    approve(other)
    assert loaded_target(game()).session is not None


def test_the_same_file_again_changes_nothing(red: Any) -> None:
    imported(factories.a_user(team=red, role="operator"))
    approve(factories.a_user(team=red, role="approver"))
    imported(
        factories.a_user(team=red, role="operator"), FLEET.replace("team: red", "team: red\n    owner: Ada")
    )
    assert loaded_target(game()).session is not None


def test_taken_away_and_brought_back_it_waits_again(red: Any) -> None:
    imported("command:fleet")
    approve(factories.a_user(team=red, role="approver"))
    imported("command:fleet", FLEET[: FLEET.index("    session:")])
    imported("command:fleet")
    assert loaded_target(game()).session is None


def test_what_changed_since_it_was_read_is_not_approved(red: Any) -> None:
    imported("command:fleet")
    seen = digest_of_session(game().session)
    imported("command:fleet", FLEET.replace("/claim", "/other"))
    with pytest.raises(ApprovalProblem, match="changed since you read"):
        approve(factories.a_user(team=red, role="approver"), seen)


def test_an_operator_may_withdraw(red: Any) -> None:
    imported("command:fleet")
    approve(factories.a_user(team=red, role="approver"))
    withdraw_approval(deployment=game(), actor=factories.a_user(team=red, role="operator"))
    assert loaded_target(game()).session is None
    assert SessionApproval.objects.count() == 1, "what was stays on record"


def test_steps_of_the_release_before_wait_too(red: Any) -> None:
    """Rows as an upgrade leaves them: described, without author and approval."""
    imported("command:fleet")
    Deployment.objects.update(session_author=None, session_set_by="")
    assert loaded_target(game()).session is None
    approve(factories.a_user(team=red, role="approver"))
    assert loaded_target(game()).session is not None
