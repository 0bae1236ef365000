"""Exports that are watched: counted while they go, cancelled within a second, and whole only where they say so."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from kvaudit.server.inquiries.exports import watched
from kvaudit.server.inquiries.models import Export
from tests.factories import a_team, a_user
from tests.server.web import builders
from tests.server.web.pages import page_text

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def viewer():
    client = Client()
    client.force_login(a_user("viewer", team=a_team("platform")))
    return client


@pytest.fixture(autouse=True)
def told():
    pair = builders.a_pair("chat-large", team=a_team("platform"))
    for number in range(30):
        builders.a_run(pair, {"pool": "pass", "version": "fail"}, at=timezone.now() - timedelta(hours=number))
    return pair


def begin(client, kind="csv", query=""):
    answer = client.post("/history/exports/", {"kind": kind, "query": query})
    assert answer.status_code == 302
    return Export.objects.latest("pk"), answer["Location"]


def taken(answer, fault):
    """The parts until the stream fails as it should."""
    sent, stream = [], iter(answer.streaming_content)

    def take():
        sent.extend(stream)

    with pytest.raises(fault):
        take()
    return sent


def page(client, address):
    answer = client.get(address)
    assert answer.status_code == 200
    return page_text(answer)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_an_export_is_counted_and_says_what_a_whole_file_comes_to(viewer, kind):
    export, address = begin(viewer, kind, "?verdict=fail&before=7&deployment=")
    assert address == f"/history/exports/{export.pk}/"
    waiting = page(viewer, address)
    assert "Waits for its download." in waiting
    assert 'hx-trigger="every 1s"' in waiting
    assert "htmx-2.min.js" in waiting
    answer = viewer.get(f"{address}file/")
    assert answer["Content-Disposition"].endswith(f'.{kind}"')
    body = b"".join(answer.streaming_content)
    if kind == "csv":
        assert len(list(csv.DictReader(io.StringIO(body.decode())))) == 30
    else:
        assert json.loads(body)["count"] == 30
        assert json.loads(body)["filters"] == {"verdict": "fail"}
    export.refresh_from_db()
    assert (export.state, export.rows, export.size) == ("finished", 30, len(body))
    assert export.sha256 == hashlib.sha256(body).hexdigest()
    done = page(viewer, address)
    assert "Sent to its end." in done
    assert "30 results, " in done
    assert export.sha256 in done
    assert "hx-trigger" not in done
    assert "verdict=fail" in done
    assert "hx-trigger" not in page(viewer, f"{address}progress/")


def test_progress_is_written_while_it_goes(viewer, monkeypatch):
    monkeypatch.setattr(watched, "EVERY", 0)
    export, address = begin(viewer)
    answer = viewer.get(f"{address}file/")
    stream = iter(answer.streaming_content)
    for _ in range(11):  # the header first
        next(stream)
    export.refresh_from_db()
    assert (export.state, export.rows) == ("running", 9)
    assert "Is being sent." in page(viewer, f"{address}progress/")
    assert "9 results so far" in page(viewer, f"{address}progress/")
    Export.objects.update(seen_at=timezone.now() - timedelta(seconds=90))
    assert "the download is paused, or it broke off" in page(viewer, f"{address}progress/")
    answer.close()  # and with it the snapshot, which the next test's clean table would wait for


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_cancelled_export_is_no_whole_file_and_says_so_in_its_last_line(viewer, kind, monkeypatch):
    monkeypatch.setattr(watched, "EVERY", 0)
    export, address = begin(viewer, kind)
    answer = viewer.get(f"{address}file/")
    stream = iter(answer.streaming_content)
    for _ in range(11):
        next(stream)
    assert viewer.post(f"{address}cancel/")["Location"] == address
    assert "Stops within seconds." in page(viewer, address)
    taken(answer, watched.Cancelled)
    export.refresh_from_db()
    assert (export.state, export.rows, export.sha256) == ("cancelled", 10, "")
    assert "Cancelled: what was sent is not the whole." in page(viewer, address)


def test_the_last_line_of_a_cancelled_one_names_the_count(viewer, monkeypatch):
    monkeypatch.setattr(watched, "EVERY", 0)
    export, address = begin(viewer)
    answer = viewer.get(f"{address}file/")
    watched.cancel(export)
    sent = taken(answer, watched.Cancelled)
    assert b"export incomplete: it was cancelled here, after 1 rows" in sent[-1]


def test_one_that_was_cancelled_before_its_download_is_not_sent(viewer):
    export, address = begin(viewer)
    viewer.post(f"{address}cancel/")
    answer = viewer.get(f"{address}file/", follow=True)
    assert "sent already" in page_text(answer)
    export.refresh_from_db()
    assert export.state == "cancelled"
    assert "The export had already ended" in page_text(viewer.post(f"{address}cancel/", follow=True))


def test_a_reader_who_goes_leaves_an_export_that_broke_off(viewer):
    export, address = begin(viewer)
    answer = viewer.get(f"{address}file/")
    stream = iter(answer.streaming_content)
    for _ in range(5):
        next(stream)
    answer.close()
    export.refresh_from_db()
    assert (export.state, export.sha256) == ("failed", "")
    assert "Broke off" in page(viewer, address)


def test_a_query_that_dies_leaves_an_export_that_broke_off(viewer, monkeypatch):
    from kvaudit.server.web.history import export_views as view

    real = view.exported_results

    def dying(question):
        for number, line in enumerate(real(question)):
            if number == 5:
                raise OperationalError("gone")
            yield line

    monkeypatch.setattr(view, "exported_results", dying)
    export, address = begin(viewer)
    sent = taken(viewer.get(f"{address}file/"), OperationalError)
    assert b"export incomplete: it broke off here" in sent[-1]
    export.refresh_from_db()
    assert (export.state, export.rows) == ("failed", 5)


def test_it_is_sent_once_and_begun_again_with_its_filters(viewer):
    _, address = begin(viewer, "json", "check=pool")
    b"".join(viewer.get(f"{address}file/").streaming_content)
    assert viewer.get(f"{address}file/")["Location"] == address
    done = page(viewer, address)
    assert '<input type="hidden" name="query" value="check=pool">' in done
    assert 'href="/history/?check=pool"' in done


def test_it_is_its_owners_and_holds_what_they_may_see_when_it_is_sent(viewer):
    _, address = begin(viewer)
    stranger = Client()
    stranger.force_login(a_user("stranger", role="admin"))
    for path in ("", "progress/", "file/"):
        assert stranger.get(f"{address}{path}").status_code == 404
    assert stranger.post(f"{address}cancel/").status_code == 404
    from kvaudit.server.accounts.models import Membership

    Membership.objects.all().delete()
    assert b"".join(viewer.get(f"{address}file/").streaming_content).count(b"\n") == 1


@pytest.mark.parametrize("query", ["q=%00", "=&;;", "\x00", "check=%25"])
def test_odd_filters_export_all_the_same(viewer, query):
    export, address = begin(viewer, "csv", query)
    assert "\u202e" not in page(viewer, address)
    b"".join(viewer.get(f"{address}file/").streaming_content)
    export.refresh_from_db()
    assert export.state == "finished"


@pytest.mark.parametrize(
    "query", ["verdict=" + "%E2%80%AE" * 50, "since=soon", "verdict=bogus", "deployment=%00"]
)
def test_filters_that_make_no_sense_are_not_exported(viewer, query):
    answer = viewer.post("/history/exports/", {"kind": "csv", "query": query}, follow=True)
    assert "Nothing was exported." in page_text(answer)
    assert "\u202e" not in page_text(answer)
    assert not Export.objects.exists()


def test_what_cannot_be_begun_is_said(viewer):
    assert viewer.post("/history/exports/", {"kind": "xls"}).status_code == 404
    answer = viewer.post("/history/exports/", {"kind": "csv", "query": "q=" + "x" * 3_000}, follow=True)
    assert "longer than an export remembers" in page_text(answer)
    assert viewer.get("/history/exports/").status_code == 405


def test_few_are_remembered(viewer, monkeypatch):
    monkeypatch.setattr(watched, "MOST_KEPT", 3)
    for _ in range(5):
        export, _ = begin(viewer)
    assert Export.objects.count() == 3
    assert Export.objects.filter(pk=export.pk).exists()
