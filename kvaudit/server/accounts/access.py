"""Decides what a user may do: fleet-wide role, roles by team, and `can`.

Knows the models of accounts only by their shape: their querysets ask here which rows a user may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from django.contrib.auth.models import AbstractUser

from kvaudit.server.accounts.roles import ABILITIES, Role

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class Team(Protocol):
    """A team as far as permissions look at it."""

    @property
    def pk(self) -> int: ...
    @property
    def slug(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Access:
    """A user's roles: ``fleet_role`` counts everywhere, ``team_roles`` by team id."""

    fleet_role: Role | None
    team_roles: Mapping[int, Role]

    def role_in(self, team_id: int) -> Role | None:
        """The stronger of the fleet-wide role and the one in that team."""
        held = [role for role in (self.fleet_role, self.team_roles.get(team_id)) if role is not None]
        return max(held, key=lambda role: role.rank, default=None)

    def team_ids_where(self, ability: str) -> list[int]:
        """Teams in which a membership alone gives the ability."""
        least = ABILITIES[ability]
        return [team_id for team_id, role in self.team_roles.items() if role.includes(least)]

    def everywhere(self, ability: str) -> bool:
        least = ABILITIES[ability]
        return self.fleet_role is not None and self.fleet_role.includes(least)


NOBODY = Access(None, {})


def access_of(user: AbstractUser | AnonymousUser) -> Access:
    """The user's roles: two queries, then kept on this instance (as Django keeps permissions)."""
    if not user.is_authenticated or not user.is_active:
        return NOBODY
    kept: Access | None = getattr(user, "_kvaudit_access", None)
    if kept is None:
        kept = _load(user)
        user._kvaudit_access = kept  # type: ignore[attr-defined]
    return kept


def forget_access(user: AbstractUser) -> None:
    """After a role of this very instance changed."""
    if hasattr(user, "_kvaudit_access"):
        del user._kvaudit_access


def can(user: AbstractUser | AnonymousUser, ability: str, team: Team | int | None = None) -> bool:
    """Whether the user has ``ability`` (a key of `ABILITIES`) for that team; without a team:
    fleet-wide. Raises KeyError for an unknown ability."""
    least = ABILITIES[ability]
    access = access_of(user)
    if team is None:
        return access.everywhere(ability)
    role = access.role_in(team if isinstance(team, int) else team.pk)
    return role is not None and role.includes(least)


def can_somewhere(user: AbstractUser | AnonymousUser, ability: str) -> bool:
    """Fleet-wide or in at least one team: whether a menu entry or an import form makes sense."""
    access = access_of(user)
    return access.everywhere(ability) or bool(access.team_ids_where(ability))


def _load(user: AbstractUser) -> Access:
    fleet = Role.ADMIN if user.is_superuser else _strongest(user.groups.values_list("name", flat=True))
    memberships = user.memberships.values_list("team_id", "role__name")  # type: ignore[attr-defined]
    teams = {team_id: role for team_id, name in memberships if (role := _role(name)) is not None}
    return Access(fleet, teams)


def _role(name: str) -> Role | None:
    try:
        return Role(name)
    except ValueError:
        return None  # a group that is no role of ours gives nothing


def _strongest(names: Iterable[str]) -> Role | None:
    roles = [role for name in names if (role := _role(name)) is not None]
    return max(roles, key=lambda role: role.rank, default=None)


def require(actor: object, ability: str, team: Team | None = None) -> None:
    """Raise PermissionDenied unless the actor may. Parts of the system (strings) may; a token never
    writes through a service."""
    from django.core.exceptions import PermissionDenied

    if isinstance(actor, str) and actor:
        return
    if not isinstance(actor, AbstractUser) or not can(actor, ability, team):
        where = f" for team {team.slug}" if team is not None else ""
        raise PermissionDenied(
            f"{ability.replace('_', ' ').capitalize()}{where}: your role does not allow it."
        )
