"""A worker's part: everything or nothing, once, with signs of life, and an honest end."""

from __future__ import annotations

import uuid

import pytest
from django.db import OperationalError

from kvaudit.server.accounts.models import Membership
from kvaudit.server.inquiries import tasks
from kvaudit.server.inquiries.models import LogImport, LogPart, RequestLog, TenantCount
from kvaudit.server.inquiries.request_logs import import_queue, import_worker, upload
from kvaudit.server.inquiries.request_logs import importer as importing
from tests.server.inquiries.request_logs.imports import HEAD, LOG, begun

pytestmark = pytest.mark.django_db

LONG = HEAD + b"2026-09-03T00:00:00Z,700000,acme,r-1\n" * 300 + b"broken\n" * 20


@pytest.fixture
def often(monkeypatch):
    """Progress at every kilobyte instead of every second."""
    monkeypatch.setattr(importing, "STEP", 1_000)
    monkeypatch.setattr(import_worker, "EVERY", 0)


def done(work):
    tasks.import_log(work.pk)
    work.refresh_from_db()
    return work


def nothing_was_kept():
    return not (RequestLog.objects.exists() or TenantCount.objects.exists() or LogPart.objects.exists())


def test_a_finished_import_holds_what_the_command_would_have_counted():
    work = done(begun(LONG))
    assert (work.state, work.rows_read, work.bytes_read, work.problem_count) == (
        "finished",
        320,
        len(LONG),
        20,
    )
    log = work.log
    assert (log.inside, log.problem_count, log.size, log.imported_by) == (
        300,
        20,
        len(LONG),
        work.requested_by,
    )
    assert [z["low"] for z in log.zones] == [681_274]
    assert not LogPart.objects.exists()


def test_a_message_that_comes_twice_imports_once():
    work = done(begun(LOG))
    done(work)
    assert RequestLog.objects.count() == 1
    tasks.import_log(work.pk + 999)  # a row that is gone


def test_an_import_that_runs_elsewhere_is_left_alone():
    from django.utils import timezone

    work = begun(LOG)
    LogImport.objects.filter(pk=work.pk).update(state="running", token=uuid.uuid4(), seen_at=timezone.now())
    assert done(work).state == "running"


def test_progress_is_written_while_it_is_read(often, monkeypatch):
    seen = []
    real = import_worker.Pulse.__call__

    def spied(self, progress):
        real(self, progress)
        row = LogImport.objects.get()
        seen.append((row.state, row.rows_read, row.bytes_read))

    monkeypatch.setattr(import_worker.Pulse, "__call__", spied)
    done(begun(LONG))
    assert len(seen) > 5
    assert {state for state, _, _ in seen} == {"running"}
    assert [rows for _, rows, _ in seen] == sorted({rows for _, rows, _ in seen})


@pytest.mark.parametrize("body", [LONG, HEAD + b"\n" * 9_000, HEAD + b"x" * 500_000])
def test_a_cancel_in_the_middle_keeps_nothing(often, monkeypatch, body):
    """Also in a file that is no request at all: blank lines, one line without an end."""
    work = begun(body)
    real = import_worker.read_all

    def cancelled_meanwhile(*args):
        assert import_queue.cancel(work=work, actor=work.requested_by)
        return real(*args)

    monkeypatch.setattr(import_worker, "read_all", cancelled_meanwhile)
    assert done(work).state == "cancelled"
    assert work.bytes_read < len(body)
    assert nothing_was_kept()


def test_a_cancel_after_the_last_line_still_counts(monkeypatch):
    work = begun(LOG)
    real = import_worker.read_all

    def cancelled_at_the_end(*args):
        found = real(*args)
        import_queue.cancel(work=work, actor=work.requested_by)
        return found

    monkeypatch.setattr(import_worker, "read_all", cancelled_at_the_end)
    assert done(work).state == "cancelled"
    assert nothing_was_kept()


def test_a_worker_that_was_given_up_writes_nothing(often, monkeypatch):
    work = begun(LONG)
    real = import_worker.read_all

    def given_up(*args):
        LogImport.objects.filter(pk=work.pk).update(state="failed", token=None, sentence="Lost.")
        return real(*args)

    monkeypatch.setattr(import_worker, "read_all", given_up)
    assert (done(work).state, work.sentence) == ("failed", "Lost.")
    assert not RequestLog.objects.exists()


def test_a_failure_is_a_failure_and_tells_no_secret(monkeypatch):
    def broken(*args):
        raise OperationalError("password=hunter2")

    monkeypatch.setattr(import_worker, "keep", broken)
    work = done(begun(LOG))
    assert work.state == "failed"
    assert "broke off" in work.sentence
    assert "hunter2" not in work.sentence
    assert nothing_was_kept()


def test_a_file_that_is_not_complete_counts_nothing(monkeypatch):
    monkeypatch.setattr(upload, "PART", 60)
    work = begun(LOG)
    work.parts.order_by("-number").first().delete()
    assert done(work).state == "failed"
    assert "not complete" in work.sentence
    assert nothing_was_kept()


def test_whoever_lost_the_right_meanwhile_imports_nothing():
    work = begun(LOG)
    Membership.objects.filter(user=work.requested_by).delete()
    assert done(work).state == "failed"
    assert nothing_was_kept()


def test_a_key_that_is_gone_is_said(settings):
    work = begun(LOG)
    settings.ENCRYPTION_KEYS = ["b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3Q="]
    assert done(work).state == "failed"
    assert "ENCRYPTION_KEYS" in work.sentence
