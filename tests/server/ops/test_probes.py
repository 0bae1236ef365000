"""/healthz, /readyz, /metrics: for machines, before host checks, telling no secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from kvaudit.server.ops import probes


@pytest.fixture
def client() -> Client:
    return Client(headers={"host": "10.0.0.7:8000"})  # by address: ALLOWED_HOSTS does not hold it


def test_healthz_needs_neither_database_nor_broker(client: Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_answer_to_get_only(client: Client, path: str) -> None:
    assert client.post(path).status_code == 405


@pytest.mark.django_db
def test_ready_with_database_migrations_and_broker(client: Client, settings: Any, valkey: str) -> None:
    settings.CELERY_BROKER_URL = valkey
    answer = client.get("/readyz")
    assert answer.json() == {"database": "ok", "migrations": "ok", "broker": "ok"}
    assert answer.status_code == 200


@pytest.mark.django_db
def test_not_ready_without_the_broker(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.CELERY_BROKER_URL = f"redis+socket://:geheim@{tmp_path}/none.sock"
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["broker"] == "no connection"
    assert b"geheim" not in answer.content


def test_not_ready_without_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OperationalError("password geheim refused")

    monkeypatch.setattr(probes.connection, "cursor", refuse)
    monkeypatch.setattr(probes, "MigrationExecutor", refuse)
    monkeypatch.setattr(probes, "_migrated", False)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["database"] == "no connection"
    assert answer.json()["migrations"] == "unknown: no connection"
    assert b"geheim" not in answer.content


@pytest.mark.django_db
def test_not_ready_with_a_migration_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_migrated", False)
    monkeypatch.setattr(probes.MigrationExecutor, "migration_plan", lambda *_: ["one", "two"])
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["migrations"] == "2 not applied"


@pytest.mark.django_db
def test_metrics_are_for_this_machine_unless_there_is_a_token(client: Client, settings: Any) -> None:
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", REMOTE_ADDR="10.1.2.3").status_code == 403
    assert client.get("/metrics", headers={"x-forwarded-for": "10.1.2.3"}).status_code == 403
    settings.METRICS_TOKEN = "scraper"
    assert client.get("/metrics").status_code == 403
    assert client.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 403
    answer = client.get("/metrics", REMOTE_ADDR="10.1.2.3", headers={"authorization": "Bearer scraper"})
    assert answer.status_code == 200
