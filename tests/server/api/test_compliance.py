"""Compliance over the API: the page's standings, for now and for a past moment, no more than the token sees."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.models import Deployment
from tests.factories import a_deployment, a_user
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders

pytestmark = pytest.mark.django_db


def get(user: Any, path: str = "compliance", query: Any = None, **token: Any) -> Any:
    _, secret = create_token(owner=user, name="x", scopes=token.pop("scopes", ["read"]), actor=user, **token)
    return Client().get(f"/api/v1/{path}", query or {}, HTTP_AUTHORIZATION=f"Bearer {secret}")


def test_it_says_what_the_standings_say() -> None:
    deployment = a_deployment(owner="Ada")
    builders.a_state(deployment, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "fail", "canary": "fail"})
    waiver = a_waiver(deployment, "1")
    ignored = a_waiver(deployment, "4")
    answer = get(a_user(team=deployment.team)).json()
    line = answer["deployments"][0]
    assert (line["deployment"], line["owner"], line["status"]) == (deployment.slug, "Ada", "fail")
    row = Assessed.objects.standings().rows[0]
    by_key = {item["item"]: item for item in line["items"]}
    assert {key: each["status"] for key, each in by_key.items()} == {
        key: cell.status.value for key, cell in row.cells.items()
    }
    assert (by_key["1"]["status"], by_key["1"]["checks_say"], by_key["1"]["waiver"]) == (
        "waived",
        "fail",
        waiver.pk,
    )
    assert (by_key["4"]["status"], by_key["4"]["leak"], by_key["4"]["waiver"]) == ("fail", True, ignored.pk)
    assert by_key["2"]["runs"] == [deployment.runs.get().pk]
    assert get(a_user(team=deployment.team), f"deployments/{deployment.slug}/compliance").json() == line | {
        "items": line["items"]
    }


def test_a_past_moment_is_asked_for_with_its_offset() -> None:
    now = timezone.now()
    deployment = a_deployment(created_at=now - timedelta(days=30))
    an_attestation(deployment, "D", valid_from=now - timedelta(days=9), valid_to=now - timedelta(days=3))
    user = a_user(team=deployment.team)

    def status(when: Any) -> str:
        answer = get(user, query={"as_of": when.isoformat()})
        return next(
            item["status"] for item in answer.json()["deployments"][0]["items"] if item["item"] == "D"
        )

    assert status(now - timedelta(days=4)) == "attested"
    assert status(now - timedelta(days=3)) == "inconclusive"
    assert get(user, query={"as_of": (now - timedelta(days=31)).isoformat()}).json()["deployments"] == []


def test_a_page_at_a_time() -> None:
    deployments = [a_deployment(f"d-{number}") for number in range(5)]
    user = a_user(role="viewer")
    seen, after = [], ""
    while True:
        answer = get(user, query={"limit": 2, "after": after}).json()
        seen += [deployment["deployment"] for deployment in answer["deployments"]]
        if answer["next"] is None:
            break
        after = answer["next"]
    assert seen == [deployment.slug for deployment in deployments]
    team = deployments[0].team.slug
    assert [
        deployment["deployment"] for deployment in get(user, query={"team": team}).json()["deployments"]
    ] == ["d-0"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"as_of": "yesterday"}, "as_of"),
        ({"as_of": "2026-01-01T00:00:00"}, "as_of"),
        ({"as_of": "2099-01-01T00:00:00Z"}, "future"),
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"after": "x" * 101}, "after"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(query: Any, sentence: str) -> None:
    answer = get(a_user(role="viewer"), query=query)
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]
    assert get(a_user(role="viewer"), query={"after": "\x00", "team": "\x00"}).status_code == 200


def test_no_more_than_the_token_sees() -> None:
    ours, theirs = a_deployment("ours"), a_deployment("theirs")
    member = a_user(team=ours.team)
    assert [deployment["deployment"] for deployment in get(member).json()["deployments"]] == ["ours"]
    assert get(member, "deployments/theirs/compliance").status_code == 404
    assert get(member, scopes=["gate"]).status_code == 403
    assert get(a_user(role="viewer"), team=theirs.team).json()["deployments"][0]["deployment"] == "theirs"
    assert Client().get("/api/v1/compliance").status_code == 401
    Deployment.objects.update(retired_at=timezone.now())
    assert get(member).json()["deployments"] == []
