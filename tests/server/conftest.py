"""Pages and the API answer as the application's database role: what a test makes is made by the owner, what a request
does is held to the privileges that it has in production."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def requests_as_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.test import Client

    from tests.server.application_role import as_the_application

    ask = Client.request

    def request(self: Client, **environ: Any) -> Any:
        with as_the_application():
            return ask(self, **environ)

    monkeypatch.setattr(Client, "request", request)
