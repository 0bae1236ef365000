"""Roles, by table: who can do what, where."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import AnonymousUser, Group
from django.core.exceptions import PermissionDenied

from kvaudit.server.accounts.access import access_of, can, can_somewhere, require
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.accounts.roles import ABILITIES, Role
from kvaudit.server.accounts.services import grant_role, revoke_role
from kvaudit.server.fleet.models import Deployment
from tests import factories


def test_roles_are_cumulative() -> None:
    order = [Role.VIEWER, Role.AUDITOR, Role.OPERATOR, Role.APPROVER, Role.ADMIN]
    for low, role in enumerate(order):
        assert [role.includes(other) for other in order] == [index <= low for index in range(5)]


@pytest.mark.django_db
def test_the_migration_makes_the_five_groups() -> None:
    """Called here, since a test that empties the tables may have run before."""
    Group.objects.all().delete()
    migration = import_module("kvaudit.server.accounts.migrations.0002_role_groups")
    migration.create(apps, None)
    names = set(Group.objects.values_list("name", flat=True))
    assert names == {"viewer", "auditor", "operator", "approver", "admin"}


@pytest.mark.django_db
@pytest.mark.parametrize("role", list(Role))
def test_a_member_can_what_the_role_allows_in_that_team_alone(role: Role) -> None:
    team, other = factories.a_team(), factories.a_team()
    user = factories.a_user(team=team, role=role)
    for ability in ABILITIES:
        allowed = role.rank >= ABILITIES[ability].rank
        assert can(user, ability, team) is allowed, ability
        assert can(user, ability, team.pk) is allowed, ability
        assert can_somewhere(user, ability) is allowed, ability
        assert not can(user, ability, other), ability
        assert not can(user, ability), ability


@pytest.mark.django_db
def test_a_fleet_wide_role_counts_in_every_team() -> None:
    auditor = factories.a_user(role=Role.AUDITOR)
    team = factories.a_team()
    assert can(auditor, "read_evidence", team)
    assert can(auditor, "view_ledger")
    assert not can(auditor, "run_audits", team)


@pytest.mark.django_db
def test_the_stronger_of_two_roles_counts() -> None:
    team = factories.a_team()
    user = factories.a_user(role=Role.VIEWER)
    grant_role(user=user, team=team, role=Role.OPERATOR, actor="system:tests")
    assert can(user, "run_audits", team)
    assert can(user, "view", factories.a_team())
    assert not can(user, "run_audits", factories.a_team())


@pytest.mark.django_db
def test_nobody_and_the_inactive_can_nothing() -> None:
    inactive = factories.an_admin()
    inactive.is_active = False
    foreign_group = factories.a_user()
    foreign_group.groups.add(Group.objects.create(name="chess club"))
    for user in (AnonymousUser(), inactive, foreign_group):
        assert not any(can(user, ability) or can_somewhere(user, ability) for ability in ABILITIES)
        assert not Deployment.objects.visible_to(user).exists()


@pytest.mark.django_db
def test_an_unknown_ability_is_an_error_not_a_no() -> None:
    with pytest.raises(KeyError):
        can(factories.an_admin(), "fly")


@pytest.mark.django_db
def test_a_grant_replaces_the_role_of_that_team_and_a_revocation_ends_it() -> None:
    team = factories.a_team()
    user = factories.a_user(team=team, role=Role.ADMIN)
    grant_role(user=user, team=team, role=Role.VIEWER, actor="system:tests")
    assert access_of(user).team_roles == {team.pk: Role.VIEWER}
    revoke_role(user=user, team=team, actor="system:tests")
    assert access_of(user).team_roles == {}
    grant_role(user=user, team=None, role=Role.ADMIN, actor="system:tests")
    grant_role(user=user, team=None, role=Role.VIEWER, actor="system:tests")
    assert access_of(user).fleet_role is Role.VIEWER
    revoke_role(user=user, team=None, actor="system:tests")
    assert access_of(user).fleet_role is None


@pytest.mark.django_db
def test_rows_are_visible_to_owner_and_member_not_to_a_stranger(django_assert_num_queries: Any) -> None:
    team, other = factories.a_team(), factories.a_team()
    ours, theirs = factories.a_deployment(team=team), factories.a_deployment(team=other)
    admin, member, stranger = factories.an_admin(), factories.a_user(team=team), factories.a_user()
    assert list(Deployment.objects.visible_to(admin)) == [ours, theirs]
    assert list(Deployment.objects.visible_to(member)) == [ours]
    assert list(Deployment.objects.visible_to(stranger)) == []
    assert list(Team.objects.visible_to(member)) == [team]
    fresh = User.objects.get(pk=member.pk)
    with django_assert_num_queries(3):  # groups, memberships, deployments; roles are then remembered
        list(Deployment.objects.visible_to(fresh))
    with django_assert_num_queries(1):
        list(Deployment.objects.visible_to(fresh))


@pytest.mark.django_db
def test_require_lets_the_system_through_and_nobody_else() -> None:
    team = factories.a_team()
    require("system:beat", "edit_fleet", team)
    require(factories.a_user(team=team, role=Role.OPERATOR), "edit_fleet", team)
    for actor in (factories.a_user(team=team), factories.a_user(), "", None, object()):
        with pytest.raises(PermissionDenied):
            require(actor, "edit_fleet", team)
