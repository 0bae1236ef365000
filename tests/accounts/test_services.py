from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied, ValidationError

from kvaudit.accounts import services
from kvaudit.accounts.access import can
from kvaudit.accounts.models import User
from kvaudit.accounts.roles import Role
from kvaudit.ledger.models import Entry
from tests import factories

pytestmark = pytest.mark.django_db


def test_the_first_administrator_is_told_a_drawn_password_once() -> None:
    admin, password = services.ensure_admin(username="admin", actor="command:initialise")
    assert admin.check_password(password)
    assert len(password) >= 16
    assert not admin.must_change_password
    assert can(admin, "manage_accounts")
    assert services.ensure_admin(username="admin", actor="command:initialise") == (admin, "")
    assert User.objects.get().check_password(password)


def test_a_given_password_is_kept_as_it_is() -> None:
    admin, password = services.ensure_admin(
        username="admin", actor="system:tests", password="given-by-the-operator"
    )
    assert (password, admin.must_change_password) == ("given-by-the-operator", False)


def test_a_changed_password_ends_the_one_time_state() -> None:
    user, _ = services.create_user(username="ada", actor="system:tests", fleet_role=Role.VIEWER)
    services.change_password(user=user, password="something longer", actor=user)
    user.refresh_from_db()
    assert user.check_password("something longer")
    assert not user.must_change_password
    assert can(user, "view")


def test_a_user_name_is_checked() -> None:
    with pytest.raises(ValidationError):
        services.create_user(username="a b\n", actor="system:tests")


def test_a_team_is_made_once() -> None:
    first = services.ensure_team(slug="Core Serving", actor="system:tests")
    assert first.slug == "core-serving"
    assert services.ensure_team(slug="core-serving", actor="system:tests") == first
    assert Entry.objects.filter(kind="team.created").count() == 1
    with pytest.raises(ValueError, match="letters"):
        services.ensure_team(slug="!", actor="system:tests")


def test_every_act_is_in_the_ledger_without_secrets() -> None:
    user, password = services.create_user(username="ada", actor="system:tests")
    services.grant_role(user=user, team=None, role=Role.ADMIN, actor="system:tests")
    services.revoke_role(user=user, team=None, actor="system:tests")
    services.deactivate_user(user=user, actor="system:tests")
    entries = list(Entry.objects.values_list("kind", "subject"))
    assert entries == [
        ("user.created", "user:ada"),
        ("role.granted", "user:ada admin in every team"),
        ("role.revoked", "user:ada in every team"),
        ("user.deactivated", "user:ada"),
    ]
    assert password not in repr(entries)


def test_owner_member_and_stranger() -> None:
    team, other = factories.a_team(), factories.a_team()
    chief, ours = factories.an_admin(), factories.a_user(team=team, role=Role.ADMIN)
    somebody = factories.a_user()
    for actor in (factories.a_user(team=team, role=Role.APPROVER), factories.a_user()):
        for act in (
            lambda by: services.grant_role(user=somebody, team=team, role=Role.VIEWER, actor=by),
            lambda by: services.revoke_role(user=somebody, team=team, actor=by),
            lambda by: services.create_user(username="new", actor=by),
            lambda by: services.deactivate_user(user=somebody, actor=by),
            lambda by: services.change_password(user=somebody, password="x" * 12, actor=by),
            lambda by: services.ensure_team(slug="new", actor=by),
        ):
            with pytest.raises(PermissionDenied):
                act(actor)
    services.grant_role(user=somebody, team=team, role=Role.VIEWER, actor=ours)
    for team_of_others in (other, None):  # an administrator of one team stays in it
        with pytest.raises(PermissionDenied):
            services.grant_role(user=somebody, team=team_of_others, role=Role.VIEWER, actor=ours)
    services.grant_role(user=somebody, team=None, role=Role.VIEWER, actor=chief)
    services.change_password(user=somebody, password="x" * 12, actor=somebody)
