"""Three people for every permission test: one who operates the team, one who may only read, a stranger.

Models are imported inside: this file is read before Django is set up when only this folder is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from kvaudit.server.accounts.models import Team, User
    from kvaudit.server.fleet.models import Deployment


@dataclass(frozen=True)
class People:
    team: Team
    operator: Client
    auditor: Client
    viewer: Client
    stranger: Client
    operating_user: User


@pytest.fixture
def people(db: None) -> People:
    from tests.factories import a_team, a_user

    team, other = a_team(), a_team()
    operating = a_user(team=team, role="operator")
    return People(
        team=team,
        operator=_client(operating),
        auditor=_client(a_user(team=team, role="auditor")),
        viewer=_client(a_user(team=team, role="viewer")),
        stranger=_client(a_user(team=other, role="admin")),
        operating_user=operating,
    )


@pytest.fixture
def pair(people: People) -> Deployment:
    """A prefill and a decode node of the team, read but not judged yet."""
    from tests.server.web import builders

    return builders.a_pair("chat-large", team=people.team)


def _client(user: User) -> Client:
    from django.test import Client

    client = Client()
    client.force_login(user)
    return client
