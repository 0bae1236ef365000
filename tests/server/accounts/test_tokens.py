"""API tokens: shown once, hashed at rest, never wider than their owner."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.server.accounts.models import ApiToken
from kvaudit.server.accounts.services import deactivate_user
from kvaudit.server.accounts.tokens import authenticate, create_token, revoke_token
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.models import Entry
from tests import factories

pytestmark = pytest.mark.django_db


def a_token(**fields: Any) -> tuple[ApiToken, str]:
    fields.setdefault("owner", factories.a_user())
    given = {"name": "ci", "scopes": ["gate"], "actor": fields["owner"]}
    return create_token(**{**given, **fields})


def test_the_token_is_given_once_and_only_its_hash_is_kept() -> None:
    token, secret = a_token()
    assert secret.startswith(token.prefix)
    assert len(secret) > 45
    stored = repr(ApiToken.objects.values().get()) + repr(token) + repr(list(Entry.objects.values()))
    assert secret not in stored
    assert secret[len(token.prefix) :] not in stored
    found = authenticate(secret)
    assert found == token
    assert found.allows("gate") and not found.allows("read")  # noqa: PT018


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s + "x", lambda s: s[:12], lambda s: "", lambda s: s.upper()]
)
def test_anything_else_is_not_the_token(change: Any) -> None:
    _, secret = a_token()
    assert authenticate(change(secret)) is None


def test_an_expired_a_revoked_and_an_orphaned_token_do_not_work() -> None:
    _, expired = a_token(expires_at=timezone.now() - timedelta(seconds=1))
    revoked_row, revoked = a_token()
    revoke_token(token=revoked_row, actor="system:tests")
    orphan_row, orphan = a_token()
    deactivate_user(user=orphan_row.owner, actor="system:tests")
    _, fine = a_token(expires_at=timezone.now() + timedelta(days=1))
    assert [authenticate(each) is not None for each in (expired, revoked, orphan, fine)] == [
        False,
        False,
        False,
        True,
    ]


def test_use_is_noted_at_most_once_a_minute(django_assert_num_queries: Any) -> None:
    token, secret = a_token()
    with django_assert_num_queries(2):
        authenticate(secret)
    token.refresh_from_db()
    assert token.last_used_at is not None
    with django_assert_num_queries(1):
        authenticate(secret)


@pytest.mark.parametrize("scopes", [[], ["everything"], ["gate", "admin"]])
def test_scopes_are_a_closed_list(scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="scopes"):
        a_token(scopes=scopes)


def test_a_token_sees_what_its_owner_sees_narrowed() -> None:
    team, other = factories.a_team(), factories.a_team()
    first, second = factories.a_deployment("first", team=team), factories.a_deployment("second", team=team)
    foreign = factories.a_deployment("foreign", team=other)
    member, admin = factories.a_user(team=team), factories.an_admin()

    def seen(**fields: Any) -> list[Deployment]:
        return list(Deployment.objects.visible_to_token(a_token(**fields)[0]))

    assert seen(owner=member) == [first, second]
    assert seen(owner=member, deployments=["second", "foreign"]) == [second]
    assert seen(owner=member, team=other) == []
    assert seen(owner=admin) == [first, foreign, second]
    assert seen(owner=admin, team=other) == [foreign]
    assert seen() == []


def test_tokens_are_seen_by_their_owner_and_by_admins() -> None:
    token, _ = a_token()
    assert list(ApiToken.objects.visible_to(token.owner)) == [token]
    assert list(ApiToken.objects.visible_to(factories.an_admin())) == [token]
    assert not ApiToken.objects.visible_to(factories.a_user(role="approver")).exists()


def test_making_and_revoking_are_recorded() -> None:
    token, _ = a_token()
    revoke_token(token=token, actor=token.owner)
    revoke_token(token=token, actor=token.owner)
    kinds = Entry.objects.filter(subject=f"token:{token.prefix}").values_list("kind", "actor")
    assert list(kinds) == [
        ("token.created", f"user:{token.owner.username}"),
        ("token.revoked", f"user:{token.owner.username}"),
    ]


def test_nobody_makes_or_stops_the_token_of_another() -> None:
    owner, other = factories.a_user(), factories.a_user(role="approver")
    token, secret = a_token(owner=owner)
    with pytest.raises(PermissionDenied):
        a_token(owner=owner, actor=other)
    with pytest.raises(PermissionDenied):
        a_token(owner=owner, actor=token)  # a token makes no tokens
    with pytest.raises(PermissionDenied):
        revoke_token(token=token, actor=other)
    assert authenticate(secret) == token
    revoke_token(token=token, actor=factories.an_admin())
    assert authenticate(secret) is None
