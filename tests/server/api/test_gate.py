"""``POST /api/v1/deployments/{slug}/gate``: what history says, and who may ask."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.tokens import create_token, revoke_token
from kvaudit.server.api.bodies import LARGEST_BODY
from kvaudit.server.audits.models import CheckState, Result
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import traffic_gate
from tests import factories
from tests.canary_evidence import GREEN, ON_ITS_WAY, added_up, evidence
from tests.server.api.states import a_change, a_state

pytestmark = pytest.mark.django_db

REPORT = {"schema": "kvaudit.report/1", "verdict": "pass", "exit_code": 0, "target": {}, "results": []}


@pytest.fixture
def deployment(db: None) -> Deployment:
    return factories.a_deployment("glm-prod")


def token_for(user: Any, scopes: Any = ("gate",), **fields: Any) -> str:
    return create_token(owner=user, name="ci", scopes=scopes, actor=user, **fields)[1]


def ask(secret: str, slug: str = "glm-prod", body: Any = REPORT, **headers: Any) -> Any:
    given = {"HTTP_AUTHORIZATION": f"Bearer {secret}"} if secret else {}
    return Client().post(
        f"/api/v1/deployments/{slug}/gate", body, content_type="application/json", **{**given, **headers}
    )


# What it answers


def test_no_history_is_inconclusive(deployment: Deployment) -> None:
    answer = ask(token_for(factories.an_admin())).json()
    assert (answer["verdict"], answer["exit_code"], answer["deployment"]) == ("inconclusive", 2, "glm-prod")
    assert [reason["check"] for reason in answer["reasons"]] == ["drift"]
    assert "drift" in answer["summary"]


def test_a_fresh_pass_of_drift_is_a_pass(deployment: Deployment) -> None:
    a_state(deployment, "drift")
    response = ask(token_for(factories.an_admin()))
    assert response.status_code == 200
    assert response.json() == {
        "deployment": "glm-prod",
        "verdict": "pass",
        "exit_code": 0,
        "summary": "History holds nothing against this deployment: "
        "no capacity change without a gate, no failing check.",
        "reasons": [{"check": "drift", "verdict": "pass", "summary": "drift says pass"}],
        "edge_limit": None,
        "edge_limit_seen_refusing": False,
        "tier": "not_verified",
        "reason": "Required checks have never all run: pool, version, accounting, rejection and 2 more.",
        "next_step": {"label": "Run the checks", "address": "/d/glm-prod/checks/"},
    }


@pytest.mark.parametrize(("significant", "verdict"), [(True, Verdict.FAIL), (False, Verdict.PASS)])
def test_a_capacity_change_counts_before_drift_is_judged_again(
    deployment: Deployment, significant: bool, verdict: Verdict
) -> None:
    a_state(deployment, "drift")
    a_change(deployment, significant=significant)
    assert traffic_gate.answer(deployment).verdict is verdict


@pytest.mark.parametrize("then", ["inconclusive", "error"])
def test_a_fail_is_not_taken_back_by_a_test_that_could_not_be_done(deployment: Deployment, then: str) -> None:
    """Otherwise an endpoint that does not answer would be the way past the gate."""
    now = timezone.now()
    a_state(deployment, "drift")
    a_state(
        deployment,
        "coherence",
        "fail",
        since=now - timedelta(hours=3),
        last_confirmed=now - timedelta(hours=2),
        closed_at=now - timedelta(hours=1),
    )
    a_state(deployment, "coherence", then, since=now - timedelta(hours=1))
    answer = traffic_gate.answer(deployment)
    assert answer.verdict is Verdict.INCONCLUSIVE
    assert "it failed and has shown nothing else since: coherence says fail" in answer.summary
    CheckState.objects.filter(closed_at=None, check_id="coherence").update(closed_at=now)
    a_state(deployment, "coherence", "pass", since=now, last_confirmed=now)
    assert traffic_gate.answer(deployment).verdict is Verdict.PASS


def test_an_expired_drift_is_inconclusive(deployment: Deployment) -> None:
    a_state(deployment, "drift", expires_at=timezone.now() - timedelta(seconds=1))
    answer = traffic_gate.answer(deployment)
    assert answer.verdict is Verdict.INCONCLUSIVE
    assert "expired (age); it said pass" in answer.summary


@pytest.mark.parametrize(
    ("check", "said", "expired", "verdict"),
    [
        ("canary", "fail", False, Verdict.FAIL),
        ("canary", "fail", True, Verdict.INCONCLUSIVE),
        ("canary", "error", False, Verdict.PASS),
        ("canary", "inconclusive", False, Verdict.PASS),
        ("pool", "fail", False, Verdict.PASS),  # the caller has just read it
        ("version", "fail", False, Verdict.PASS),
        ("exposure", "fail", False, Verdict.PASS),  # only where asked for
    ],
)
def test_findings(
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    said: str,
    expired: bool,
    verdict: Verdict,
) -> None:
    monkeypatch.setattr(checks, "MODULES", (*checks.PASSIVE, "canary"))
    a_state(deployment, "drift")
    past = {"expires_at": timezone.now() - timedelta(minutes=1), "expired_by": "capacity change"}
    a_state(deployment, check, said, **(past if expired else {}))
    answer = traffic_gate.answer(deployment)
    assert answer.verdict is verdict
    assert ("canary" in answer.summary) is (verdict is not Verdict.PASS)


@pytest.mark.parametrize(
    ("runs", "verdict", "said"),
    [
        (
            GREEN,
            Verdict.PASS,
            "the boundary has 22.0 of 20 effective trials on this build, and fewer than 10% of",
        ),
        (
            ON_ITS_WAY,
            Verdict.INCONCLUSIVE,
            "the boundary has 6.0 of 20 effective trials on this build. kvaudit q",
        ),
        (((1, evidence(boundary=30, build="")),), Verdict.INCONCLUSIVE, "nobody knows which build serves"),
        (
            GREEN[:1],
            Verdict.PASS,
            "the boundary has 21.0 of 20",
        ),  # a newcomer has no nights in production yet
    ],
)
def test_a_build_that_the_canary_never_met_at_the_boundary(
    deployment: Deployment, runs: Any, verdict: Verdict, said: str
) -> None:
    a_state(deployment, "drift")
    state = a_state(deployment, "canary", "inconclusive")
    Result.objects.filter(pk=state.result_id).update(measures={"accumulated": added_up(*runs)})
    (reason,) = (
        reason
        for reason in traffic_gate.qualified(traffic_gate.past_of(deployment))
        if reason.check == "canary"
    )
    assert reason.verdict is verdict
    assert said in reason.summary


@pytest.mark.parametrize(("seen", "verdict"), [(False, Verdict.INCONCLUSIVE), (True, Verdict.PASS)])
def test_a_declared_edge_limit_must_have_been_seen_refusing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, seen: bool, verdict: Verdict
) -> None:
    a_state(deployment, "drift")
    deployment.edge_limit = 600_000
    from dataclasses import replace

    from kvaudit.server.audits.state.history import history_for

    monkeypatch.setattr(
        traffic_gate, "history_for", lambda each: replace(history_for(each), edge_limit_seen_refusing=seen)
    )
    answer = traffic_gate.answer(deployment)
    assert (answer.verdict, answer.edge_limit, answer.edge_limit_seen_refusing) == (verdict, 600_000, seen)
    assert any("600,000" in reason.summary for reason in answer.reasons)


def test_the_worst_reason_comes_first_and_decides(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "MODULES", (*checks.PASSIVE, "canary"))
    a_state(deployment, "drift", "error", summary="prefill-0 refused the connection")
    a_state(deployment, "canary", "fail", summary="text of tenant a surfaced for tenant b")
    answer = traffic_gate.answer(deployment)
    assert [reason.check for reason in answer.reasons] == ["canary", "drift"]
    assert answer.summary == "History says fail: canary: text of tenant a surfaced for tenant b."


def test_a_stored_verdict_that_nobody_knows_is_never_a_pass(deployment: Deployment) -> None:
    a_state(deployment, "drift", "splendid")
    assert traffic_gate.answer(deployment).verdict is Verdict.ERROR


# Who may ask


def test_owner_member_and_stranger(deployment: Deployment) -> None:
    member, stranger = factories.a_user(team=deployment.team), factories.a_user(team=factories.a_team())
    assert ask(token_for(factories.an_admin())).status_code == 200
    assert ask(token_for(member)).status_code == 200
    refused, unknown = ask(token_for(stranger)), ask(token_for(member), slug="nothing-here")
    assert refused.status_code == unknown.status_code == 404
    assert refused.json()["error"] == "There is no deployment 'glm-prod' that this token may see."


@pytest.mark.parametrize("fields", [{"deployments": ["other"]}, {"team": "another"}])
def test_a_narrowed_token_sees_less(deployment: Deployment, fields: dict[str, Any]) -> None:
    if "team" in fields:
        fields = {"team": factories.a_team()}
    assert ask(token_for(factories.an_admin(), **fields)).status_code == 404


def test_a_retired_deployment_is_not_there(deployment: Deployment) -> None:
    Deployment.objects.update(retired_at=timezone.now())
    assert ask(token_for(factories.an_admin())).status_code == 404


def test_a_token_for_reading_may_not_ask_the_gate(deployment: Deployment) -> None:
    response = ask(token_for(factories.an_admin(), scopes=["read"]))
    assert response.status_code == 403
    assert "'gate'" in response.json()["error"]


@pytest.mark.parametrize("secret", ["", "nonsense", "kva_0000000000", "kva_" + "x" * 500, "ä"])
def test_a_wrong_token_is_401(deployment: Deployment, secret: str) -> None:
    response = ask(secret)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    assert "API token" in response.json()["error"]


def test_a_revoked_token_is_401_and_a_session_is_no_token(deployment: Deployment) -> None:
    admin = factories.an_admin()
    token, secret = create_token(owner=admin, name="x", scopes=["gate"], actor=admin)
    revoke_token(token=token, actor=admin)
    assert ask(secret).status_code == 401
    browser = Client()
    browser.force_login(admin)
    response = browser.post("/api/v1/deployments/glm-prod/gate", REPORT, content_type="application/json")
    assert response.status_code == 401


# Bodies


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "the body: Field required"),
        ("{", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        (b"\xff\xfe", "must be JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ("{}", "schema"),
        ({**REPORT, "schema": "kvaudit.report/2"}, "schema"),
        ({**REPORT, "verdict": "green"}, "verdict"),
        ({**REPORT, "verdict": None}, "verdict"),
    ],
)
def test_a_body_that_does_not_fit_is_422_with_a_sentence(
    deployment: Deployment, body: Any, sentence: str
) -> None:
    response = ask(token_for(factories.an_admin()), body=body)
    assert response.status_code == 422
    assert sentence in response.json()["error"]


def test_a_body_that_is_too_long_is_413_before_it_is_read(deployment: Deployment) -> None:
    secret = token_for(factories.an_admin())
    assert ask(secret, body="x" * (LARGEST_BODY + 1)).status_code == 413
    far = ask(secret, body="x" * (2 * LARGEST_BODY))
    assert (far.status_code, "at most" in far.json()["error"]) == (413, True)
    large = {**REPORT, "results": ["x" * (LARGEST_BODY - 1000)]}
    assert ask(secret, body=large).status_code == 200


@pytest.mark.parametrize("slug", ["a%00b", "%F0%9F%92%A9", "x" * 300, "..", "a%2Fb", "'; DROP"])
def test_an_odd_slug_is_404(deployment: Deployment, slug: str) -> None:
    assert ask(token_for(factories.an_admin()), slug=slug).status_code == 404


def test_the_wrong_method_is_405(deployment: Deployment) -> None:
    assert Client().get("/api/v1/deployments/glm-prod/gate").status_code == 405
