"""What a scrape says, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import DjangoAssertNumQueries

from kvaudit.server.ledger.services import record
from kvaudit.server.ops import metrics


def scrape() -> dict[str, dict[tuple[str, ...], float]]:
    body, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(body.decode())
    }


@pytest.mark.django_db
def test_an_empty_product_has_numbers_too(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_max_num_queries(12):
        found = scrape()
    assert found["kvaudit_database_up"] == {(): 1.0}
    assert found["kvaudit_runs"] == {
        ("passive", "queued"): 0.0,
        ("passive", "running"): 0.0,
        ("active", "queued"): 0.0,
        ("active", "running"): 0.0,
    }
    assert found["kvaudit_overdue"] == {(): 0.0}
    assert found["kvaudit_notifications_waiting"] == {(): 0.0}


@pytest.mark.django_db
def test_the_ledger_is_counted() -> None:
    before = scrape()["kvaudit_ledger_entries"][()]
    record(actor="system:test", kind="test.done", subject="test:1")
    assert scrape()["kvaudit_ledger_entries"][()] == before + 1


def test_a_dead_database_is_a_number_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(metrics, "_states", refuse)
    assert scrape() == {"kvaudit_database_up": {(): 0.0}}
