"""Whose clock is wrong and whose disk is full stands where operators look, and nowhere else."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from kvaudit.server import clock, disk
from kvaudit.server.audits.models import WorkerClock
from kvaudit.server.ops import metrics
from tests.server.web.pages import page_text

HOUR = 3600


def heard_of(name, skew, ago=0.0):
    WorkerClock.objects.create(name=name, skew=skew, seen_at=clock.database_now() - timedelta(seconds=ago))


def notes(client, path="/"):
    text = re.sub(r"<[^>]+>", "", page_text(client.get(path)))
    return " ".join(text.split()).replace("&#x27;", "'").replace("&#39;", "'")


def test_a_worker_whose_clock_is_wrong_is_named_to_who_runs_audits(people, pair):
    heard_of("passive@gpu-1", 2 * HOUR)
    heard_of("active@gpu-2", -7)
    heard_of("active@gpu-3", 0.2)
    heard_of("passive@gone", 2 * HOUR, ago=HOUR)
    said = notes(people.operator)
    assert (
        "The clock of worker passive@gpu-1 is 2 h 0 min ahead compared with the database's: it takes no work"
        in said
    )
    assert "The clock of worker active@gpu-2 is 7 s behind compared with the database's: put it right" in said
    assert "gpu-3" not in said
    assert "gone" not in said
    assert "gpu-1" not in notes(people.viewer)
    settings = notes(people.operator, "/settings/")
    assert (
        "look passive@gpu-1: 2 h 0 min ahead, takes no work" in settings or "passive@gpu-1: 2 h" in settings
    )
    assert "Looked after by operators." in notes(people.viewer, "/settings/")
    body = metrics.exposition()[0].decode()
    assert 'kvaudit_worker_clock_skew_seconds{worker="passive@gpu-1"} 7200.0' in body


def test_the_pages_own_machine(machine, people, pair):
    machine(timedelta(hours=-2))
    assert "The clock of the machine that serves these pages is 2 h 0 min behind" in notes(people.operator)
    skew = re.search(r"(?m)^kvaudit_web_clock_skew_seconds (\S+)", metrics.exposition()[0].decode())
    assert skew is not None
    assert float(skew[1]) == pytest.approx(-2 * HOUR, abs=5)


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (0, "is full (0 MB of 20.0 GB free): nothing can be recorded"),
        (100 * 2**20, "is almost full (100 MB of 20.0 GB free)"),
        (2 * 2**30, ""),
    ],
)
def test_the_disk(people, pair, settings, monkeypatch, tmp_path, free, said):
    settings.STATE_FOLDER = str(tmp_path)
    monkeypatch.setattr(disk, "room", lambda folder: disk.Room(Path(folder), free, 20 * 2**30))
    page = notes(people.operator)
    assert said in page
    assert ("The disk of" in page) == bool(said)
    assert "free" in notes(people.operator, "/settings/")
    body = metrics.exposition()[0].decode()
    assert (
        f"kvaudit_state_free_bytes {float(free)}" in body
        or f"kvaudit_state_free_bytes {free:.3e}" in body
        or free > 0
    )


def test_room_of_what_is_not_there():
    assert disk.room(Path("/nonexistent/folder")) is None
