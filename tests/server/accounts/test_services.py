from __future__ import annotations

import threading

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection

from kvaudit.server.accounts import services
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.accounts.roles import ABILITIES, Role
from kvaudit.server.ledger.models import Entry
from tests import factories
from tests.waiting import PATIENCE

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


def test_somebody_who_manages_accounts_always_stays() -> None:
    first, _ = services.ensure_admin(username="admin", actor="command:initialise")
    for act in (
        lambda: services.revoke_role(user=first, team=None, actor=first),
        lambda: services.grant_role(user=first, team=None, role=Role.VIEWER, actor=first),
    ):
        with pytest.raises(services.AccountProblem, match="no administrator"):
            act()
    assert can(User.objects.get(pk=first.pk), "manage_accounts")
    second = factories.an_admin()
    services.revoke_role(user=first, team=None, actor=second)
    assert not can(User.objects.get(pk=first.pk), "view"), "a first administrator can be taken the role, too"
    with pytest.raises(services.AccountProblem, match="yourself"):
        services.deactivate_user(user=second, actor=second)
    services.grant_role(user=first, team=None, role=Role.ADMIN, actor=second)
    services.deactivate_user(user=first, actor=second)
    with pytest.raises(services.AccountProblem, match="no administrator"):
        services.revoke_role(user=second, team=None, actor=second)
    User.objects.update(is_active=True)
    services.revoke_role(user=second, team=None, actor=second)


def test_an_administrator_who_is_deactivated_by_nobody_else_is_counted() -> None:
    chief, other = factories.an_admin(), factories.an_admin()
    services.deactivate_user(user=other, actor=chief)
    services.reactivate_user(user=other, actor=chief)
    assert can(User.objects.get(pk=other.pk), "manage_accounts")
    services.deactivate_user(user=chief, actor=other)
    assert Entry.objects.filter(kind="user.reactivated", subject=f"user:{other.username}").count() == 1


def test_nobody_hands_out_more_than_they_hold(monkeypatch) -> None:
    monkeypatch.setitem(ABILITIES, "manage_accounts", Role.OPERATOR)
    team, somebody = factories.a_team(), factories.a_user()
    operator = factories.a_user(team=team, role=Role.OPERATOR)
    services.grant_role(user=somebody, team=team, role=Role.OPERATOR, actor=operator)
    with pytest.raises(services.AccountProblem, match="above your own"):
        services.grant_role(user=somebody, team=team, role=Role.APPROVER, actor=operator)


def test_a_reset_password_is_for_once_and_for_others() -> None:
    chief, ada = factories.an_admin(), factories.a_user("ada", password="hers-and-hers-alone")
    one_time = services.reset_password(user=ada, actor=chief)
    ada.refresh_from_db()
    assert ada.check_password(one_time)
    assert ada.must_change_password
    with pytest.raises(services.AccountProblem, match="Your own"):
        services.reset_password(user=chief, actor=chief)
    with pytest.raises(PermissionDenied):
        services.reset_password(user=chief, actor=ada)
    assert one_time not in repr(list(Entry.objects.values_list()))


def test_a_user_is_made_with_a_role_in_a_team() -> None:
    team = factories.a_team()
    user, _ = services.create_user(
        username="ada", actor=factories.an_admin(), team_role=(team, Role.OPERATOR)
    )
    assert can(user, "run_audits", team)
    assert not can(user, "view")


def test_a_team_gets_another_name_and_keeps_its_slug() -> None:
    team = factories.a_team("core")
    services.rename_team(team=team, name=" Core Serving ", actor=factories.a_user(team=team, role="admin"))
    team.refresh_from_db()
    assert (team.slug, team.name) == ("core", "Core Serving")
    with pytest.raises(PermissionDenied):
        services.rename_team(team=team, name="Ours", actor=factories.a_user(team=team, role="approver"))
    with pytest.raises(services.AccountProblem, match="letters"):
        services.rename_team(team=team, name="\u202e", actor=factories.an_admin())
    assert Entry.objects.filter(kind="team.renamed").count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_administrators_who_remove_each_other_do_not_both_succeed() -> None:
    pair = [factories.an_admin("ada"), factories.an_admin("eve")]
    refused: list[Exception] = []
    together = threading.Barrier(2)

    def remove(actor: User, other: User) -> None:
        try:
            together.wait(PATIENCE)
            services.revoke_role(user=User.objects.get(pk=other.pk), team=None, actor=actor)
        except (services.AccountProblem, PermissionDenied) as problem:
            refused.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=remove, args=each) for each in (pair, pair[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(refused) == 1
    assert [can(User.objects.get(pk=each.pk), "manage_accounts") for each in pair].count(True) == 1
