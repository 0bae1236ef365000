"""``/healthz`` (the process lives), ``/readyz`` (it can work), ``/metrics`` (numbers for Prometheus).

A middleware, not views: an orchestrator asks by address over plain HTTP, so these answers must come
before the host check and the redirect to https.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare

from kvaudit.server.ops.metrics import exposition

_LOOPBACK = {"127.0.0.1", "::1"}
# Migrations change only when a new process starts, so a complete set is not read again.
_migrated = False


class ProbesMiddleware:
    """Answers the three probe paths and passes everything else on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        probe = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}.get(request.path_info)
        if probe is None:
            return self.get_response(request)
        if request.method not in {"GET", "HEAD"}:
            return HttpResponse("Probes answer to GET only.\n", status=405, content_type="text/plain")
        response = probe(request)
        response["Cache-Control"] = "no-store"
        return response


def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers; touches neither database nor broker."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, migrations and broker are usable, else 503 naming what is not."""
    parts = {"database": database_fault(), "migrations": migrations_fault(), "broker": broker_fault()}
    answer = {name: fault or "ok" for name, fault in parts.items()}
    return JsonResponse(answer, status=503 if any(parts.values()) else 200)


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text; with a bearer token when METRICS_TOKEN is set, else only on this machine."""
    if not may_read_metrics(request):
        return HttpResponse(
            "Metrics need the bearer token of METRICS_TOKEN.\n", status=403, content_type="text/plain"
        )
    body, content_type = exposition()
    return HttpResponse(body, content_type=content_type)


def may_read_metrics(request: HttpRequest) -> bool:
    """Whether this scrape is allowed."""
    token: str = settings.METRICS_TOKEN
    if token:
        return constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {token}")
    # A forwarded request comes from elsewhere although its peer is a proxy on this machine.
    forwarded = "X-Forwarded-For" in request.headers or "Forwarded" in request.headers
    return not forwarded and request.META.get("REMOTE_ADDR") in _LOOPBACK


def database_fault() -> str:
    """Empty, or why the database cannot be used (its own words may hold a password, so not those)."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "no connection"
    return ""


def migrations_fault() -> str:
    """Empty, or how many migrations are missing."""
    global _migrated
    if _migrated:
        return ""
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "unknown: no connection"
    if missing:
        return f"{len(missing)} not applied"
    _migrated = True
    return ""


def broker_fault() -> str:
    """Empty, or why the broker cannot be used."""
    # Imported here: redis is not needed to answer /healthz.
    import redis

    url = settings.CELERY_BROKER_URL.replace("redis+socket://", "unix://", 1)
    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            client.ping()
    except redis.RedisError:
        return "no connection"
    return ""
