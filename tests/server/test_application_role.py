"""A request of a test is made with the privileges that the application has in production."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError, connection, transaction
from django.test import Client

from tests.server.application_role import ROLE

pytestmark = pytest.mark.django_db


def roles() -> tuple[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, session_user")
        found: tuple[str, str] = cursor.fetchone()
    return found


def test_within_a_request_the_role_is_the_application_s(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def look(request: object) -> None:
        seen.append(roles())
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            connection.cursor().execute("DELETE FROM ledger_entry")

    monkeypatch.setattr("django.contrib.auth.middleware.AuthenticationMiddleware.process_request", _and(look))
    Client().get("/login/")
    owner = roles()
    assert seen == [(ROLE, owner[1])]
    assert owner[0] == owner[1] != ROLE


def _and(look):  # type: ignore[no-untyped-def]
    from django.contrib.auth.middleware import AuthenticationMiddleware

    process = AuthenticationMiddleware.process_request

    def both(self, request):  # type: ignore[no-untyped-def]
        look(request)
        return process(self, request)

    return both
