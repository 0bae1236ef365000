"""Queries for the reader's own log store: the SQL is run, the others hold the same numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from kvaudit.server.inquiries.exposure.timespans import Span, SpanStatus, Statement
from kvaudit.server.web.exposure.log_queries import MOST_ZONES, left_out, queries

ZERO = datetime(2026, 9, 1, tzinfo=UTC)


def statement(*zones):
    spans = [
        Span(ZERO + timedelta(days=n), ZERO + timedelta(days=n + 1), SpanStatus.DANGER, "", 1, zone)
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


def run_sql(text, rows):
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE requests (time timestamptz, prompt_tokens bigint, tenant text)"
        )
        cursor.executemany("INSERT INTO requests VALUES (%s, %s, %s)", rows)
        cursor.execute(text)
        found = [(tenant, count) for tenant, count, _, _ in cursor.fetchall()]
        cursor.execute("DROP TABLE requests")
    return found


def openings(number):
    """Openings of different lengths, a day apart."""
    return statement(*((100 * n, 100 * n + 50) for n in range(1, number + 1)))


@pytest.mark.parametrize("number", [1, 13, MOST_ZONES])
def test_every_opening_is_in_every_query(number):
    found = openings(number)
    for query in queries(found):
        for low in range(100, 100 * number + 1, 100):
            assert str(low) in query.text.replace("=", " ").split(), query.name
        assert "Not in these queries" not in query.text
    assert left_out(found) == ""


def test_what_does_not_fit_is_named_in_the_query_itself():
    found = openings(MOST_ZONES + 5)
    said = "the 5 earliest of 205 openings, 2026-09-01T00:00:00Z to 2026-09-06T00:00:00Z"
    assert said in left_out(found)
    for query in queries(found):
        comment, rest = query.text.split("\n", 1)
        assert said in comment
        assert comment.startswith(("-- ", "# "))
        assert " 500 " not in rest
        assert " 600 " in rest


@pytest.mark.django_db
def test_the_sql_with_a_comment_still_runs():
    text = queries(openings(MOST_ZONES + 5))[0].text
    assert run_sql(text, [(ZERO, 100, "a"), (ZERO + timedelta(days=5), 600, "b")]) == [("b", 1)]


def test_equal_openings_without_a_gap_are_asked_for_once():
    for query in queries(statement(*[(100, 200)] * 30)):
        assert query.text.count("100") == 1
    text = queries(statement(*[(100, 200)] * 30))[2].text
    assert "at 2026-10-01T00:00:00Z" in text
    assert f"[{30 * 86_400 + 1}s]" in text


SPLIT = Span(
    ZERO + timedelta(microseconds=1),
    ZERO + timedelta(seconds=9, microseconds=1),
    SpanStatus.DANGER,
    "",
    1,
    (100, 200),
)


@pytest.mark.django_db
def test_the_last_fraction_of_a_second_is_inside():
    inside = ZERO + timedelta(seconds=9)
    after = ZERO + timedelta(seconds=10)
    text = queries(Statement(ZERO, after, [SPLIT], [SPLIT]))[0].text
    assert run_sql(text, [(ZERO, 150, "a"), (inside, 150, "a"), (after, 150, "a")]) == [("a", 2)]


def test_the_others_round_alike():
    loki, jq = (query.text for query in queries(Statement(ZERO, ZERO, [SPLIT], [SPLIT]))[2:])
    assert "# at 2026-09-01T00:00:10Z" in loki
    assert "[11s]" in loki
    assert '$t >= "2026-09-01T00:00:00" and $t < "2026-09-01T00:00:10"' in jq


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jq_counts_what_lay_inside_at_its_time():
    entries = [
        ("2026-09-01T00:00:09Z", 150, "a"), ("2026-09-01T00:00:09.999Z", 150, "a"), ("2026-09-01T00:00:00.5Z", 100, "a"),
        ("2026-09-01T00:00:10Z", 150, "b"), ("2026-08-31T23:59:59.9Z", 150, "b"), ("2026-09-01T00:00:09Z", 200, "b"),
    ]  # fmt: skip
    text = queries(Statement(ZERO, ZERO, [SPLIT], [SPLIT]))[3].text
    program = text.split("'")[1]
    lines = "\n".join(json.dumps({"time": t, "prompt_tokens": n, "tenant": who}) for t, n, who in entries)
    done = subprocess.run(["jq", "-r", program], input=lines, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a", "a", "a"]


def test_every_query_names_the_same_lengths():
    for query in queries(statement((681_274, 1_048_570))):
        assert "681274" in query.text
        assert "1048570" in query.text


@pytest.mark.parametrize("zones", [(), (None,), (None, None)])
def test_without_known_lengths_there_is_no_query(zones):
    assert queries(statement(*zones)) == []
