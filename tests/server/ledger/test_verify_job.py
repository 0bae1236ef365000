"""Verification as queued work: asked for once, carried out once, and never "intact" for what was not seen."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.server import broker
from kvaudit.server.ledger import searching, services, tasks, verify_job
from kvaudit.server.ledger.models import Entry, Verification
from kvaudit.server.ops.ledger import verify
from tests import factories
from tests.server.ledger.test_chain_check import tamper

pytestmark = pytest.mark.django_db


@pytest.fixture
def _five() -> None:
    for number in range(1, 6):
        services.record(actor="system:x", kind="run.finished", subject=f"run:{number}")


def verified() -> Verification:
    work = verify_job.begin(actor="system:tests")
    tasks.verify(work.pk)
    work.refresh_from_db()
    return work


@pytest.mark.usefixtures("_five")
def test_an_untouched_ledger_is_found_intact_and_that_is_recorded(monkeypatch):
    monkeypatch.setattr(searching, "BATCH", 2)
    work = verified()
    fifth, sixth = Entry.objects.filter(sequence__gte=5)
    assert (work.outcome, work.entries, work.wanted, work.last_hash) == ("intact", 5, 5, fifth.hash)
    assert work.finished_at is not None
    assert (sixth.kind, sixth.subject, sixth.digest, sixth.actor) == (
        "ledger.verified", "ledger:1-5", fifth.hash, "system:tests",
    )  # fmt: skip


def test_an_empty_ledger_is_intact():
    assert (verified().outcome, Entry.objects.get().subject) == ("intact", "ledger:1-0")


@pytest.mark.usefixtures("_five")
def test_an_altered_entry_is_named():
    tamper("UPDATE ledger_entry SET subject = 'run:99' WHERE sequence = 3")
    work = verified()
    assert (work.outcome, work.entries) == ("broken", 2)
    assert "Entry 3 was altered" in work.sentence
    assert Entry.objects.latest("sequence").kind == "ledger.broken"


@pytest.mark.usefixtures("_five")
@pytest.mark.parametrize("door", ["page", "command"])
def test_an_end_cut_off_after_a_verification_shows_at_the_next(door):
    """Six entries with that of the verification itself, of which the last two are cut off."""
    verified()
    tamper("DELETE FROM ledger_entry WHERE sequence > 4")
    if door == "command":
        assert verify(["verify"]) == 1
    else:
        assert verified().outcome == "broken"
    assert Verification.objects.ended().first().sentence.startswith("Entry 5 was verified before and is gone")


@pytest.mark.usefixtures("_five")
def test_a_rewritten_end_shows_at_the_next_verification():
    verified()
    tamper("DELETE FROM ledger_entry WHERE sequence > 3")
    for number in range(9):
        services.record(actor="system:x", kind="run.finished", subject=f"run:{number}")
    assert "Entry 5 has another hash" in verified().sentence


@pytest.mark.usefixtures("_five")
def test_a_second_request_gets_the_first_and_a_redelivered_task_does_nothing():
    work = verify_job.begin(actor="system:tests")
    assert verify_job.begin(actor=factories.a_user(role="auditor")).pk == work.pk
    tasks.verify(work.pk)
    tasks.verify(work.pk)
    assert Entry.objects.filter(kind="ledger.verified").count() == 1
    assert verify_job.begin(actor="system:tests").pk != work.pk


@pytest.mark.usefixtures("_five")
def test_a_worker_that_lives_keeps_it_and_one_that_is_gone_loses_it():
    work = verify_job.begin(actor="system:tests")
    now = timezone.now()
    Verification.objects.update(started_at=now, seen_at=now, token=uuid.uuid4())
    tasks.verify(work.pk)
    work.refresh_from_db()
    assert (work.outcome, work.lost(now)) == ("", False)
    Verification.objects.update(seen_at=now - timedelta(seconds=61))
    work.refresh_from_db()
    assert work.lost(now)
    tasks.verify(work.pk)
    work.refresh_from_db()
    assert (work.outcome, work.lost(now)) == ("intact", False)


@pytest.mark.usefixtures("_five")
def test_the_worker_that_lost_it_writes_nothing(monkeypatch):
    work = verify_job.begin(actor="system:tests")
    monkeypatch.setattr(verify_job, "EVERY", -1.0)
    real = verify_job.verify_chain

    def overtaken(entries, noted):
        Verification.objects.update(token=uuid.uuid4())
        return real(entries, noted)

    monkeypatch.setattr(verify_job, "verify_chain", overtaken)
    tasks.verify(work.pk)
    work.refresh_from_db()
    assert (work.outcome, work.finished_at) == ("", None)
    assert not Entry.objects.filter(kind__startswith="ledger.").exists()


@pytest.mark.usefixtures("_five")
def test_one_that_breaks_off_is_an_error_never_intact(monkeypatch):
    def broken(*_):
        raise RuntimeError("disk on fire")

    monkeypatch.setattr(verify_job, "verify_chain", broken)
    work = verified()
    assert (work.outcome, work.sentence) == ("error", verify_job.BROKE_OFF)
    assert not Verification.objects.decided().exists()
    monkeypatch.undo()
    assert verified().outcome == "intact"


def test_only_a_fleet_wide_auditor_asks():
    team = factories.a_team()
    for user in (factories.a_user(team=team, role="admin"), factories.a_user(role="viewer")):
        with pytest.raises(PermissionDenied):
            verify_job.begin(actor=user)
    assert verify_job.begin(actor=factories.a_user("ada", role="auditor")).asked_by == "user:ada"


def test_the_system_asks_once_a_day_and_rings_again_for_what_waits(
    monkeypatch, django_capture_on_commit_callbacks
):
    rung: list[int] = []
    monkeypatch.setattr(broker.current_app, "send_task", lambda name, args, **_: rung.append(args[0]))
    with django_capture_on_commit_callbacks(execute=True):
        tasks.verify_when_due()
        tasks.verify_when_due()
    work = Verification.objects.get()
    assert rung == [work.pk, work.pk]
    tasks.verify(work.pk)
    tasks.verify_when_due()
    assert len(rung) == 2
    Verification.objects.update(asked_at=timezone.now() - timedelta(hours=25))
    tasks.verify_when_due()
    assert Verification.objects.count() == 2


def test_a_broker_that_is_away_is_said_and_the_request_stays(
    monkeypatch, caplog, django_capture_on_commit_callbacks
):
    def away(*_, **__):
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(broker.current_app, "send_task", away)
    with django_capture_on_commit_callbacks(execute=True):
        verify_job.begin(actor="system:tests")
    assert Verification.objects.open().count() == 1
    assert "waits for the broker" in caplog.text


@pytest.mark.usefixtures("_five")
def test_the_command_leaves_a_note_unless_the_hash_was_mistyped(capsys):
    assert verify(["verify", "--last-hash", "0" * 64]) == 1
    assert not Verification.objects.exists()
    assert verify(["verify"]) == 0
    note = Verification.objects.get()
    assert (note.asked_by, note.outcome, note.entries) == ("command:ledger-verify", "intact", 5)
