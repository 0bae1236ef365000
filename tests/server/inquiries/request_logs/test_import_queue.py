"""Imports as queued work: begun with sealed parts, cancelled, and ended when nobody works on them any more."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.server.inquiries import tasks
from kvaudit.server.inquiries.models import LogImport, LogPart, RequestLog
from kvaudit.server.inquiries.request_logs import import_queue, import_worker, upload
from kvaudit.server.inquiries.request_logs.reader import NoLog
from tests.factories import a_deployment, a_team, a_user
from tests.server.inquiries.request_logs.imports import LOG, ZERO, begun

pytestmark = pytest.mark.django_db


def aged(work, **fields):
    LogImport.objects.filter(pk=work.pk).update(**fields)
    work.refresh_from_db()
    return work


def test_the_file_is_stored_in_sealed_parts_of_bounded_size(monkeypatch):
    monkeypatch.setattr(upload, "PART", 40)
    work = begun(LOG)
    sealed = list(work.parts.values_list("sealed", flat=True))
    assert len(sealed) == -(-len(LOG) // 40)
    assert work.size == len(LOG)
    assert not any("acme" in each for each in sealed)
    assert io.BufferedReader(import_worker.Parts(work)).read() == LOG


@pytest.mark.parametrize(
    "body", [b"", b"\n", b"a,b\n", b"\x1f\x8b\x08", b"PK\x03\x04", b"[{}]", b"x" * 70_000]
)
def test_what_is_no_log_is_refused_before_anything_is_stored(body):
    with pytest.raises(NoLog):
        begun(body)
    assert not LogImport.objects.exists()


def test_blank_beginnings_are_left_to_the_worker(monkeypatch):
    monkeypatch.setattr(upload, "PART", 10)
    work = begun(b"\n" * 10 + LOG)
    tasks.import_log(work.pk)
    assert RequestLog.objects.get().requests == 3


def test_too_large_a_file_is_refused(monkeypatch):
    monkeypatch.setattr(upload, "MOST_BYTES", len(LOG) - 1)
    with pytest.raises(NoLog, match=r"manage\.py request_log"):
        begun(LOG)


def test_only_who_may_read_evidence_begins_and_cancels():
    deployment = a_deployment()
    viewer = a_user("viewer", team=deployment.team)
    with pytest.raises(PermissionDenied):
        begun(LOG, deployment=deployment, actor=viewer)
    work = begun(LOG, deployment=deployment)
    for other in (viewer, a_user("stranger", team=a_team("elsewhere"), role="admin")):
        with pytest.raises(PermissionDenied):
            import_queue.cancel(work=work, actor=other)
    assert LogImport.objects.get().state == "queued"


def test_a_queued_import_is_cancelled_at_once():
    work = begun(LOG)
    assert import_queue.cancel(work=work, actor=work.requested_by)
    tasks.import_log(work.pk)
    work.refresh_from_db()
    assert work.state == "cancelled"
    assert not LogPart.objects.exists()
    assert not RequestLog.objects.exists()
    assert not import_queue.cancel(work=work, actor=work.requested_by)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"state": "running", "seen_at": -61}, "failed"),
        ({"state": "running", "seen_at": -61, "cancel_requested_at": -70}, "cancelled"),
        ({"state": "running", "seen_at": -30}, "running"),
        ({"state": "queued", "requested_at": -7 * 3600}, "failed"),
        ({"state": "queued", "requested_at": -3600}, "queued"),
    ],
)
def test_what_nobody_works_on_ends_and_its_file_is_deleted(fields, state):
    now = timezone.now()
    work = aged(
        begun(LOG),
        **{k: v if isinstance(v, str) else now + timedelta(seconds=v) for k, v in fields.items()},
    )
    tasks.recover()
    work.refresh_from_db()
    assert work.state == state
    assert LogPart.objects.exists() is (state in {"running", "queued"})
    assert ("Nothing was kept" in work.sentence) is (state == "failed")


def test_a_lost_bell_is_rung_again(monkeypatch):
    rung: list[int] = []
    monkeypatch.setattr(import_queue, "_notify_worker", rung.append)
    late, fresh = begun(LOG), begun(LOG)
    aged(late, rung_at=timezone.now() - timedelta(seconds=61))
    tasks.recover()
    tasks.recover()
    assert rung == [late.pk]
    assert fresh.pk not in rung


def test_without_a_broker_it_waits(django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        work = begun(LOG)
    assert LogImport.objects.get(pk=work.pk).state == "queued"


def test_the_window_is_kept_as_given():
    work = begun(LOG)
    assert (work.since, work.until) == (ZERO, datetime(2026, 9, 11, tzinfo=UTC))
