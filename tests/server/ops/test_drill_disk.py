"""A disk that runs full under the whole product, and one that is full when it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.drills import fill, small_disk
from tests.server.ops.running import Up, free_port, status_of
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.drill


def wear_out(up: Up) -> None:
    """Write to PostgreSQL's log until it cannot, and ends itself for it."""
    with (
        contextlib.suppress(psycopg.OperationalError),
        psycopg.connect(
            host=str(up.state / "run" / "pg"), user="kvaudit_owner", dbname="kvaudit", autocommit=True
        ) as connection,
    ):
        for _ in range(2_000):
            connection.execute("SELECT pg_logical_emit_message(false, 'worn', repeat('x', 1000000))")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("notes_too", [False, True], ids=["notes elsewhere", "notes on the full disk"])
def test_a_full_disk_ends_nothing_for_good(tmp_path, notes_too):
    with small_disk(300) as disk:
        (disk / "kvaudit").mkdir(mode=0o755)
        up = Up(disk / "kvaudit" / "var", free_port(), output=None if notes_too else tmp_path / "output")
        try:
            up.ready()
            before = up.groups()
            filler = fill(disk)
            wear_out(up)
            fill(disk)
            until(lambda: is_gone(before["postgres"]), "PostgreSQL gives up", 120)
            for name in ("valkey", "web", "beat", "worker-active"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(before[name], signal.SIGKILL)
            if not notes_too:
                until(lambda: "is full" in up.said(), "it says that the disk is full")
                until(lambda: up.said().count("starting it again") > 6, "it goes on trying", 120)
            deadline = time.monotonic() + 5  # nothing to wait for: it must simply not end
            while time.monotonic() < deadline:
                assert up.process.poll() is None, up.said()
                time.sleep(0.1)
            filler.unlink()
            until(lambda: status_of(f"{up.url}/readyz") == 200, "it recovers alone", 2 * PATIENCE)
            if not notes_too:
                assert "has room again" in up.said()
            until(lambda: set(up.groups()) == set(before), "every part runs again", 120)
            assert up.process.poll() is None
            body = up.get("/metrics")
            assert "kvaudit_state_free_bytes" in body
        finally:
            up.destroy()


def test_a_start_on_a_full_disk_is_refused_with_a_sentence(tmp_path):
    with small_disk(40) as disk:
        up = Up(disk / "var", free_port(), output=tmp_path / "output")
        assert up.ended() == 3
        assert (
            "is full (39 MB of 40 MB free, 64 MB are needed): make room on it" in up.said()
            or "MB are needed" in up.said()
        )
        assert not (disk / "var" / "pgdata").exists()
        fill(disk)
        up = Up(disk / "other", free_port(), output=tmp_path / "output-2")
        assert up.ended() == 3
        assert "is full" in up.said()
        assert "Traceback" not in up.said()


def test_a_start_on_a_disk_without_room_for_files_is_refused_with_a_sentence(tmp_path):
    with small_disk(300, files=3) as disk:
        up = Up(disk / "var", free_port(), output=tmp_path / "output")
        assert up.ended() == 3
        assert f"The disk of the state folder {disk}/var is full" in up.said()
        assert "Traceback" not in up.said()
