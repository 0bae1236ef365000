"""Queries for the reader's own log store: the SQL is run, the others hold the same numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from kvaudit.inquiries.statement import Span, Standing, Statement
from kvaudit.web.tables.log_queries import queries

ZERO = datetime(2026, 9, 1, tzinfo=UTC)


def statement(*zones):
    spans = [
        Span(ZERO + timedelta(days=n), ZERO + timedelta(days=n + 1), Standing.DANGER, "", 1, zone)
        for n, zone in enumerate(zones)
    ]
    return Statement(ZERO, ZERO + timedelta(days=30), spans, spans)


@pytest.mark.django_db
def test_the_sql_counts_what_lay_inside_at_its_time():
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE requests (time timestamptz, prompt_tokens bigint, tenant text)"
        )
        cursor.executemany(
            "INSERT INTO requests VALUES (%s, %s, %s)",
            [
                (ZERO, 100, "a"),
                (ZERO, 199, "a"),
                (ZERO, 200, "a"),
                (ZERO + timedelta(days=1), 150, "b"),
                (ZERO + timedelta(days=1), 350, "b"),
                (ZERO + timedelta(days=2), 350, "c"),
            ],
        )
        cursor.execute(queries(statement((100, 200), (300, 400)))[0].text)
        assert [(tenant, count) for tenant, count, _, _ in cursor.fetchall()] == [("a", 2), ("b", 1)]
        cursor.execute("DROP TABLE requests")


def test_every_query_names_the_same_lengths():
    for query in queries(statement((681_274, 1_048_570))):
        assert "681274" in query.text
        assert "1048570" in query.text


@pytest.mark.parametrize("zones", [(), (None,), (None, None)])
def test_without_known_lengths_there_is_no_query(zones):
    assert queries(statement(*zones)) == []
