"""Plain functions that make rows for tests; no magic, no shared state. Names are made unique."""

from __future__ import annotations

import itertools
from typing import Any

from kvaudit.auditor.targets import Target
from kvaudit.server.accounts import services as accounts
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.accounts.roles import Role
from kvaudit.server.accounts.sealing import SealBroken
from kvaudit.server.fleet.models import Deployment, Node
from kvaudit.server.fleet.target_loader import load_targets

_numbers = itertools.count(1)


def a_team(slug: str = "") -> Team:
    slug = slug or f"team-{next(_numbers)}"
    return Team.objects.get_or_create(slug=slug, defaults={"name": slug})[0]


def a_user(
    name: str = "", *, team: Team | None = None, role: Role | str | None = None, password: str = ""
) -> User:
    """A user; with ``team`` a member in ``role`` (viewer), with a role alone it counts fleet-wide."""
    user = User(username=name or f"user-{next(_numbers)}")
    if password:
        user.set_password(password)
    else:
        user.set_unusable_password()
    user.save()
    if team is not None or role is not None:
        accounts.grant_role(user=user, team=team, role=Role(role or Role.VIEWER), actor="system:tests")
    return User.objects.get(pk=user.pk)


def an_admin(name: str = "", **kwargs: Any) -> User:
    return a_user(name, role=Role.ADMIN, **kwargs)


def a_deployment(slug: str = "", *, team: Team | None = None, **fields: Any) -> Deployment:
    return Deployment.objects.create(
        slug=slug or f"deployment-{next(_numbers)}", team=team or a_team(), **fields
    )


def a_node(deployment: Deployment, name: str = "", **fields: Any) -> Node:
    name = name or f"node-{next(_numbers)}"
    fields.setdefault("url", f"http://127.0.0.1:9/{name}")
    return Node.objects.create(deployment=deployment, name=name, **fields)


def loaded_target(deployment: Deployment) -> Target:
    """As a run gets it, keys opened; SealBroken with the sentence where they cannot be."""
    targets, broken = load_targets([deployment])
    if broken:
        raise SealBroken(broken[deployment.pk])
    return targets[deployment.pk]
