"""The other routes, and the description of all."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from kvaudit.server.accounts.tokens import create_token
from tests import factories
from tests.server.api.states import a_state

pytestmark = pytest.mark.django_db


def get(path: str, user: Any, scopes: Any = ("read",)) -> Any:
    _, secret = create_token(owner=user, name="x", scopes=scopes, actor=user)
    return Client().get(f"/api/v1/{path}", HTTP_AUTHORIZATION=f"Bearer {secret}")


def test_the_description_names_every_route_and_its_answers() -> None:
    response = Client().get("/api/v1/openapi.json")
    assert response.status_code == 200
    document = response.json()
    assert set(document["paths"]) == {
        "/api/v1/compliance",
        "/api/v1/deployments",
        "/api/v1/deployments/{slug}/compliance",
        "/api/v1/deployments/{slug}",
        "/api/v1/deployments/{slug}/gate",
    }
    asked = document["paths"]["/api/v1/deployments/{slug}/gate"]["post"]
    assert set(asked["responses"]) == {"200", "401", "403", "404", "413", "422"}
    assert asked["security"] == [{"Bearer": []}]
    question = document["components"]["schemas"]["GateQuestion"]
    assert question["required"] == ["schema", "verdict"]


def test_there_is_no_documentation_page_from_elsewhere() -> None:
    assert Client().get("/api/v1/docs").status_code == 404


def test_the_list_holds_what_the_token_may_see(django_assert_num_queries: Any) -> None:
    ours = factories.a_deployment("ours")
    for number in range(5):
        factories.a_deployment(f"ours-{number}", team=ours.team)
    factories.a_deployment("theirs")
    a_state(ours, "pool", "fail")
    member = factories.a_user(team=ours.team)
    response = get("deployments", member)
    first = response.json()[0]
    assert (first["slug"], first["verdict"]) == ("ours", "fail")
    assert {each["verdict"] for each in response.json()[1:]} == {"inconclusive"}
    assert len(response.json()) == 6
    assert (first["tier"], first["reason"]) == ("unsafe", "Failing: pool.")
    assert first["next_step"]["label"] == "See what failed"
    assert {each["tier"] for each in response.json()[1:]} == {"not_verified"}
    assert get("deployments", factories.a_user()).json() == []
    assert get("deployments", member, scopes=["gate"]).status_code == 403

    _, secret = create_token(owner=member, name="x", scopes=["read"], actor=member)
    with django_assert_num_queries(9):  # token, its use, roles, deployments, status, incidents
        Client().get("/api/v1/deployments", HTTP_AUTHORIZATION=f"Bearer {secret}")


def test_one_deployment_with_its_checks() -> None:
    deployment = factories.a_deployment("glm-prod")
    a_state(deployment, "pool", "fail", summary="681,280 < 1,310,720")
    member, stranger = factories.a_user(team=deployment.team), factories.a_user()
    body = get("deployments/glm-prod", member).json()
    assert (body["verdict"], body["team"]) == ("fail", deployment.team.slug)
    pool = next(check for check in body["checks"] if check["check"] == "pool")
    assert (pool["said"], pool["summary"], pool["expired_by"]) == ("fail", "681,280 < 1,310,720", "")
    assert "version" in body["missing"]
    assert get("deployments/glm-prod", stranger).status_code == 404
    assert get("deployments/a%00b", member).status_code == 404
