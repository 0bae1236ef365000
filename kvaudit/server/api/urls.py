"""``/api/v1/``: the routes. OpenAPI is at ``/api/v1/openapi.json``; there is no documentation page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import path
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from kvaudit.server.accounts.models import ApiToken, TokenScope
from kvaudit.server.api import compliance
from kvaudit.server.api.bearer import Bearer, require_scope, visible_deployment
from kvaudit.server.api.bodies import LARGEST_BODY, CappedParser
from kvaudit.server.api.schemas import (
    CheckLine,
    DeploymentDetail,
    DeploymentLine,
    GateAnswer,
    GateQuestion,
    GateReason,
    Problem,
    status_fields,
)
from kvaudit.server.audits.state.deployment_status import DeploymentStatus
from kvaudit.server.audits.state.status import status_of, statuses
from kvaudit.server.audits.state.tiers import Assessment
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import traffic_gate
from kvaudit.server.incidents.assessments import assessed, assessment

api = NinjaAPI(
    title="kvaudit",
    version="1",
    description="Audits of LLM inference fleets for cross-tenant KV-cache leaks.",
    docs_url=None,
    auth=Bearer(),
    parser=CappedParser(),
    urls_namespace="api",
)

api.add_router("", compliance.router)

_PROBLEMS = {401: Problem, 403: Problem, 404: Problem}


class TokenRequest(HttpRequest):
    """A request after `Bearer`."""

    auth: ApiToken


@api.post(
    "/deployments/{slug}/gate",
    response={200: GateAnswer, **_PROBLEMS, 413: Problem, 422: Problem},
    summary="May this deployment take traffic, as far as history knows?",
)
def ask_gate(request: TokenRequest, slug: str, question: GateQuestion) -> GateAnswer:
    deployment = visible_deployment(request.auth, slug, TokenScope.GATE.value)
    status = status_of(deployment)
    answer = traffic_gate.answer(deployment, status)
    return GateAnswer(
        **status_fields(assessment(deployment, status)),
        deployment=answer.deployment,
        verdict=answer.verdict.value,
        exit_code=answer.verdict.exit_code,
        summary=answer.summary,
        reasons=[
            GateReason(check=reason.check, verdict=reason.verdict.value, summary=reason.summary)
            for reason in answer.reasons
        ],
        edge_limit=answer.edge_limit,
        edge_limit_seen_refusing=answer.edge_limit_seen_refusing,
    )


@api.get("/deployments", response={200: list[DeploymentLine], 401: Problem, 403: Problem})
def list_deployments(request: TokenRequest) -> list[DeploymentLine]:
    """Every deployment that the token may see, with its status now."""
    require_scope(request.auth, TokenScope.READ.value)
    seen = list(Deployment.objects.visible_to_token(request.auth).active().select_related("team"))
    status = statuses(seen)
    said = assessed({each.pk: each.slug for each in seen}, status)
    return [DeploymentLine(**_line(each, status[each.pk], said[each.pk])) for each in seen]


@api.get("/deployments/{slug}", response={200: DeploymentDetail, **_PROBLEMS})
def show_deployment(request: TokenRequest, slug: str) -> DeploymentDetail:
    """One deployment with the state of each check."""
    deployment = visible_deployment(request.auth, slug, TokenScope.READ.value)
    status = status_of(deployment)
    checks = [
        CheckLine(
            check=now.check,
            verdict=now.verdict.value,
            said=now.said.value if now.said else None,
            warn=now.warn,
            summary=now.summary,
            since=now.since,
            last_confirmed=now.last_confirmed,
            expires_at=now.expires_at,
            expired_by=now.expired_by,
        )
        for now in status.checks.values()
    ]
    said = assessment(deployment, status)
    return DeploymentDetail(
        **_line(deployment, status, said), checks=checks, missing=status.missing, expired=status.expired
    )


def _line(deployment: Deployment, status: DeploymentStatus, said: Assessment) -> dict[str, Any]:
    return {
        **status_fields(said),
        "slug": deployment.slug,
        "team": deployment.team.slug,
        "verdict": status.verdict.value,
        "warn": status.warn,
    }


@api.exception_handler(AuthenticationError)
def _no_token(request: HttpRequest, _: AuthenticationError) -> HttpResponse:
    sentence = "Give a valid API token: Authorization: Bearer kva_... (it may be expired or revoked)."
    response = api.create_response(request, {"error": sentence}, status=401)
    response["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(HttpError)
def _refused(request: HttpRequest, problem: HttpError) -> HttpResponse:
    # What our parser raises, ninja wraps into a 400 of its own.
    said = problem.__cause__ if isinstance(problem.__cause__, HttpError) else problem
    return api.create_response(request, {"error": str(said)}, status=said.status_code)


@api.exception_handler(RequestDataTooBig)
def _too_big(request: HttpRequest, _: RequestDataTooBig) -> HttpResponse:
    # Raised where the body is touched before our parser sees its length.
    sentence = f"The body may have at most {LARGEST_BODY:,} bytes."
    return api.create_response(request, {"error": sentence}, status=413)


@api.exception_handler(ValidationError)
def _unfit(request: HttpRequest, problem: ValidationError) -> HttpResponse:
    parts = []
    for error in problem.errors[:5]:
        where = ".".join(str(step) for step in error["loc"] if step not in ("body", "question"))
        parts.append(f"{where or 'the body'}: {error['msg']}")
    sentence = f"The request does not fit: {'; '.join(parts)}."
    return api.create_response(request, {"error": sentence}, status=422)


def _answers_are_kept_by_nobody(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """They say who is at risk: no proxy and no disk keeps them."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    # What ninja says of its views to Django (CSRF exemption among it) stays on them.
    return wrapped


_routes, _app, _namespace = api.urls
for _route in _routes:
    assert _route.callback is not None
    _route.callback = _answers_are_kept_by_nobody(_route.callback)

urlpatterns = [path("", (_routes, _app, _namespace))]
