"""Taking in a log as it comes: sealed part by part, refused early, and nothing left of what was not queued."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.server.inquiries import tasks
from kvaudit.server.inquiries.models import LogImport, LogPart, RequestLog
from kvaudit.server.inquiries.request_logs import import_queue, upload
from kvaudit.server.inquiries.request_logs.reader import NoLog
from kvaudit.server.inquiries.request_logs.upload import Receiver
from tests.factories import a_deployment, a_user
from tests.server.inquiries.request_logs.imports import LOG, ZERO, ZONE

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(upload, "PART", 40)
    monkeypatch.setattr(upload, "EVERY", 0)


@pytest.fixture
def receiver() -> Receiver:
    deployment = a_deployment()
    return Receiver(
        deployment=deployment, name="gateway.csv", actor=a_user(team=deployment.team, role="auditor")
    )


def window():
    return {"since": ZERO, "until": ZERO + timedelta(days=10), "zones": [ZONE]}


@pytest.mark.parametrize("step", [1, 39, 40, 41, 1_000])
def test_pieces_of_any_size_come_to_the_same(receiver, step):
    for start in range(0, len(LOG), step):
        receiver.write(LOG[start : start + step])
    work = receiver.queue(**window())
    receiver.drop()  # does nothing to what was queued
    assert (work.state, work.size, work.parts.count()) == ("queued", len(LOG), -(-len(LOG) // 40))
    tasks.import_log(work.pk)
    assert RequestLog.objects.get().inside == 3
    assert not LogPart.objects.exists()


def test_a_worker_does_not_read_what_is_still_coming(receiver):
    receiver.write(LOG)
    tasks.import_log(receiver.work.pk)
    tasks.recover()
    assert LogImport.objects.get().state == "receiving"
    assert LogImport.objects.get().size == len(LOG)


def test_what_is_not_queued_leaves_nothing(receiver):
    receiver.write(LOG)
    assert LogPart.objects.exists()
    receiver.drop()
    receiver.drop()
    assert not LogImport.objects.exists()
    assert not LogPart.objects.exists()
    with pytest.raises(NoLog, match="ended before"):
        receiver.queue(**window())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" + b" " * 60, "one JSON list"),
        (b"\x1f\x8b" + b"x" * 60, "compressed"),
        (b"\xff\xfet\x00i\x00" + b"\x00" * 60, "UTF-16"),
        (b"a,b,c\n" + b"1,2,3\n" * 20, "no column time"),
        (b"time,prompt".replace(b"", b"\x00") + b"\x00" * 60, "UTF-16"),
        (b"time,prompt_tokens,tenant\r2026-09-03T00:00:00Z,7,acme\r", "carriage returns"),
        (b"", "empty"),
        (b" \n", "empty"),
    ],
)
def test_what_can_be_seen_to_be_no_log_is_refused_at_its_beginning(receiver, body, said):
    def take_in() -> None:
        receiver.write(body)
        receiver.queue(**window())

    with pytest.raises(NoLog, match=said):
        take_in()
    assert not LogImport.objects.exists()
    assert not LogPart.objects.exists()


def test_a_file_that_grows_too_large_is_refused_while_it_comes(receiver, monkeypatch):
    monkeypatch.setattr(upload, "MOST_BYTES", 100)
    receiver.write(LOG[:100])
    with pytest.raises(NoLog, match=r"manage\.py request_log"):
        receiver.write(LOG[100:101])
    assert not LogPart.objects.exists()


def test_a_cancel_while_it_comes_ends_it_and_leaves_no_part(receiver):
    receiver.write(LOG[:50])
    work = receiver.work
    assert import_queue.cancel(work=work, actor=work.requested_by)
    assert not LogPart.objects.exists()
    with pytest.raises(NoLog, match="ended before"):
        receiver.write(LOG[50:])
    assert LogImport.objects.get().state == "cancelled"
    assert not LogPart.objects.exists()


def test_an_upload_whose_sender_vanished_is_given_up(receiver):
    receiver.write(LOG[:50])
    for minutes, state in ((9, "receiving"), (11, "failed")):
        LogImport.objects.update(seen_at=timezone.now() - timedelta(minutes=minutes))
        tasks.recover()
        assert LogImport.objects.get().state == state
    assert "broke off" in LogImport.objects.get().sentence
    assert not LogPart.objects.exists()


def test_only_so_many_are_live_at_once_and_only_for_whoever_may(receiver, monkeypatch):
    deployment, actor = receiver.work.deployment, receiver.work.requested_by
    with pytest.raises(PermissionDenied):
        Receiver(deployment=deployment, name="x", actor=a_user(team=deployment.team))
    monkeypatch.setattr(upload, "MOST_LIVE", 1)
    with pytest.raises(NoLog, match="not done yet"):
        Receiver(deployment=deployment, name="x", actor=actor)
    receiver.drop()
    assert Receiver(deployment=deployment, name="x", actor=actor).work
