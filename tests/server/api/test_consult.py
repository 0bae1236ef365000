"""The two ends together: what `kvaudit gate --server` makes of our answers, over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvaudit.auditor.commands.server_gate import Server, ServerVerdict, ask
from kvaudit.auditor.report import build
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.tokens import create_token
from tests import factories
from tests.server.api.states import a_change, a_state

REPORT = build("glm-prod", [], [])


def said(live_server: Any, secret: str, slug: str = "glm-prod") -> ServerVerdict:
    return asyncio.run(ask(Server(live_server.url, slug, secret), REPORT))


@pytest.mark.django_db(transaction=True)
def test_verdicts_travel_and_everything_else_is_an_error(live_server: Any) -> None:
    deployment = factories.a_deployment("glm-prod")
    admin = factories.an_admin()
    _, secret = create_token(owner=admin, name="ci", scopes=["gate"], actor=admin)

    assert said(live_server, secret).verdict is Verdict.INCONCLUSIVE
    a_state(deployment, "drift")
    assert said(live_server, secret).verdict is Verdict.PASS
    a_change(deployment)
    answer = said(live_server, secret)
    assert answer.verdict is Verdict.FAIL
    assert "the gate set has not completed since" in answer.summary

    assert said(live_server, "kva_wrong").verdict is Verdict.ERROR
    assert "token" in said(live_server, "kva_wrong").summary
    assert "no deployment" in said(live_server, secret, slug="elsewhere").summary
