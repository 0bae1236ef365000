"""CSV and JSON of everything that matches: complete, safe in a spreadsheet, one snapshot, flat memory."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kvaudit.server.audits.evidence import export as exporting
from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state.history_query import Question
from tests.factories import a_team, a_user
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def viewer():
    client = Client()
    client.force_login(a_user("viewer", team=a_team("platform")))
    return client


@pytest.fixture
def told():
    pair = builders.a_pair("chat-large", team=a_team("platform"))
    now = timezone.now()
    for number in range(30):
        builders.a_run(pair, {"pool": "pass", "version": "pass"}, at=now - timedelta(hours=number))
    builders.a_run(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    return pair


def body(answer):
    return b"".join(answer.streaming_content).decode()


def test_csv_holds_every_row_and_no_formula(viewer, told):
    Result.objects.filter(verdict="fail").update(summary="=HYPERLINK(1)\x07\n\u202e")
    answer = viewer.get("/history/csv/")
    assert "attachment" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(body(answer))))
    assert len(rows) == 61
    assert rows[0]["summary"].startswith("'=HYPERLINK")
    assert (rows[0]["deployment"], rows[0]["verdict"], rows[0]["engines and versions"]) == (
        "chat-large",
        "fail",
        "sglang 0.5.22",
    )
    assert rows[0]["observed (UTC)"].endswith("Z")


def test_json_holds_measures_and_is_one_document(viewer, told):
    document = json.loads(body(viewer.get("/history/json/?verdict=fail")))
    assert document["schema"] == "kvaudit.history/1"
    assert document["filters"] == {"verdict": "fail"}
    assert document["count"] == len(document["results"]) == 1
    assert document["results"][0]["measures"]["pool_tokens"] == 681_280


def test_filters_that_match_nothing_export_a_head(viewer, told):
    assert len(body(viewer.get("/history/csv/?deployment=nobody")).splitlines()) == 1
    assert json.loads(body(viewer.get("/history/json/?check=canary")))["results"] == []


@pytest.mark.parametrize(
    ("query", "said"),
    [("since=foo", "“foo” is no date"), ("verdict=bogus", "no such verdict as “bogus”"), ("trigger=%3Cb%3E", "no such trigger"),
     ("until=%00", "is nothing to filter by (until)"), ("since=foo&verdict=bogus", "no such verdict")],
)  # fmt: skip
def test_filters_that_make_no_sense_are_refused_with_the_pages_sentence(viewer, told, query, said):
    for kind in ("csv", "json"):
        answer = viewer.get(f"/history/{kind}/?{query}")
        assert answer.status_code == 400
        assert answer["Content-Type"].startswith("text/plain")
        assert said in answer.content.decode()


def test_a_stranger_exports_nothing(told):
    client = Client()
    client.force_login(a_user("stranger", team=a_team("other"), role="admin"))
    assert len(body(client.get("/history/csv/")).splitlines()) == 1


def test_rows_come_in_small_parts_from_one_snapshot(told, monkeypatch):
    monkeypatch.setattr(exporting, "AT_ONCE", 5)
    stream = exporting.exported_results(Question())
    first = next(stream)
    # What is written while somebody downloads belongs to the next export.
    builders.a_run(told, {"version": "pass"})
    Result.objects.filter(pk__lt=first.id).update(summary="rewritten")
    rest = list(stream)
    assert len(rest) == 60
    assert not any(line.summary == "rewritten" for line in rest)


def test_an_abandoned_download_ends_its_query(told, monkeypatch):
    from django.db import connection

    monkeypatch.setattr(exporting, "AT_ONCE", 1)
    stream = exporting.exported_results(Question())
    next(stream)
    counting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    with connection.cursor() as cursor:
        cursor.execute(counting)
        during = cursor.fetchone()[0]
        stream.close()
        cursor.execute(counting)
        assert cursor.fetchone()[0] <= during
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND state = 'idle in transaction' AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchone()[0] == 0


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_query_that_dies_in_mid_stream_leaves_no_file_that_looks_complete(viewer, told, monkeypatch, kind):
    from django.db import OperationalError, connection

    monkeypatch.setattr(exporting, "AT_ONCE", 5)
    parts: list[bytes] = []
    answer = viewer.get(f"/history/{kind}/")
    stream = iter(answer.streaming_content)
    parts += [next(stream) for _ in range(3)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND state = 'idle in transaction' AND pid <> pg_backend_pid()"
        )
    with pytest.raises(OperationalError):
        parts.extend(stream)
    text = b"".join(parts).decode()
    assert 3 < len(parts) < 61
    assert text.splitlines()[-1].startswith("export incomplete: ")
    if kind == "json":
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


def test_the_page_says_what_its_exports_hold(viewer, told):
    page = viewer.get("/history/").content.decode()
    assert "export incomplete" in page
