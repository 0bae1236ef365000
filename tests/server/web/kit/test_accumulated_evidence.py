"""The way to green, drawn from a stored result that may say anything."""

from __future__ import annotations

from typing import Any

import pytest
from django.template.loader import render_to_string

from kvaudit.server.audits.models import CheckState, Result, Run
from kvaudit.server.web.deployment import views as deployment_views
from kvaudit.server.web.kit.parts.accumulated_evidence import accumulated_of
from kvaudit.server.web.runs import audit_now_views
from tests.canary_evidence import GREEN, ON_ITS_WAY, added_up
from tests.server.checklists.claims import EVERYTHING
from tests.server.web import builders
from tests.server.web.pages import page_text


def drawn(told: Any) -> str:
    shown = accumulated_of(Result(measures={"accumulated": told}))
    return "" if shown is None else render_to_string("kit/accumulated_evidence.html", {"shown": shown})


def test_on_the_way_it_says_how_far_and_what_brings_it() -> None:
    page = drawn(added_up(*ON_ITS_WAY))
    assert "Fewer than 23% of requests drawn like these leak" in page
    assert "expected in three nights at this budget" in page
    assert "kvaudit qualify" in page
    assert page.count("missing") == 2


def test_green_says_its_bound_where_trials_come_from_and_until_when() -> None:
    page = drawn(added_up(*GREEN))
    assert "Fewer than 10% of requests" in page
    assert "21.0 on newcomers" in page
    assert "9.0 in production" in page
    assert "It stays green until" in page
    assert "missing" not in page
    assert "What brings it" not in page


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"verdict": 7, "needs": "x", "strata": [{}], "places": [], "expires_at": "soon", "bound": "0.1"},
        {
            "needs": [{"key": "boundary", "has": "1"}, {"key": "<b>", "has": 1, "needs": 2, "days": 3}],
            "bound": 9,
        },
        {"summary": "<b>bold</b>", "build_said": "<i>", "places": {"production": float("nan")}},
    ],
)
def test_whatever_is_stored_is_drawn(told: Any) -> None:
    page = drawn(told)
    assert "<b>" not in page
    assert "Effective trials" in page


@pytest.mark.parametrize("told", [None, "x", []])
def test_without_evidence_there_is_nothing_to_draw(told: Any) -> None:
    assert drawn(told) == ""
    assert accumulated_of(None) is None


@pytest.mark.parametrize("expired", [False, True])
def test_deployment_and_run_show_it(people: Any, pair: Any, expired: bool) -> None:
    run = builders.a_state(pair, {"canary": "inconclusive"}, expired=expired)
    Result.objects.filter(run=run).update(measures={"accumulated": added_up(*ON_ITS_WAY)})
    deployment = page_text(people.viewer.get(f"/d/{pair.slug}/checks/"))
    assert ("What the canary’s runs show together" in deployment) is not expired
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "With the runs before it" in page
    assert "Fewer than 23% of requests" in page


@pytest.mark.parametrize("alone", [False, True])
def test_the_bound_stands_beside_every_green(people: Any, pair: Any, alone: bool) -> None:
    builders.a_state(pair, dict.fromkeys(EVERYTHING, "pass"))
    said = (
        "In 60 valid rounds no marker appeared. With dirtying 1.00 fewer than 10.0% of requests drawn like these leak."
        if alone
        else added_up(*GREEN)["summary"]
    )
    CheckState.objects.filter(check_id="canary").update(summary=said)
    bound = "ewer than 10.0%" if alone else "ewer than 10%"
    for address in (
        "/",
        "/compliance/",
        "/compliance/csv/",
        f"/d/{pair.slug}/checks/",
        f"/d/{pair.slug}/items/4/",
    ):
        answer = people.viewer.get(address)
        body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        assert f"{bound} of requests" in body.decode(), address
    CheckState.objects.filter(check_id="canary").update(verdict="inconclusive")
    assert f"{bound} of requests" not in people.viewer.get("/compliance/").content.decode()


def test_the_button_qualifies_what_takes_no_traffic(
    people: Any, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = builders.a_state(pair, {"canary": "inconclusive"})
    Result.objects.filter(run=run).update(measures={"accumulated": added_up(*ON_ITS_WAY)})
    address = f"/d/{pair.slug}/checks/"
    assert "Qualify now" not in page_text(people.operator.get(address))  # without keys it could ask nothing
    for module in (deployment_views, audit_now_views):
        monkeypatch.setattr(module, "able_active", lambda *_: ["rejection", "canary"])
    assert "Qualify now" in page_text(people.operator.get(address))
    assert "Qualify now" not in page_text(people.viewer.get(address))
    audit = f"/d/{pair.slug}/audit/"
    assert people.viewer.post(audit, {"kind": "qualify"}).status_code == 403
    people.operator.post(audit, {"kind": "qualify"})
    asked = Run.objects.get(state="queued")
    assert (asked.checks, asked.where, asked.kind) == (["canary"], "drained", "active")
    Result.objects.filter(run=run).update(measures={"accumulated": added_up(*GREEN)})
    assert "Qualify now" not in page_text(people.operator.get(address))
