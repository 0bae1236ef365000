"""The supervisor: order of stopping, restarts, and what it says."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvaudit.server import disk
from kvaudit.server.ops.process import Child, spawn
from kvaudit.server.ops.progress import Progress
from kvaudit.server.ops.supervisor import StartFault, Stopped, Supervisor
from tests.waiting import PATIENCE

SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    return Supervisor(Progress(), tmp_path / "children.json")


def child(tmp_path: Path, name: str, code: str, tier: int = 0) -> Child:
    log = tmp_path / f"{name}.log"

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return spawn([sys.executable, "-c", code], env={"PATH": os.environ["PATH"]}, log=output)

    return Child(name, start, tier=tier, log_path=log, grace=PATIENCE)


def test_higher_tiers_stop_first(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Child, "ask_to_stop", lambda self: asked.append(self.name))
    for name, tier in (("database", 0), ("worker", 2), ("web", 3), ("beat", 3)):
        supervisor.children.append(child(tmp_path, name, "", tier))
    supervisor.stop()
    assert asked == ["web", "beat", "worker", "database"]


def test_a_child_that_dies_while_something_is_awaited_ends_the_start_with_its_last_words(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    web = supervisor.start(child(tmp_path, "web", SLEEP))
    supervisor.start(child(tmp_path, "worker", "raise SystemExit('no module named sense')"))
    with pytest.raises(StartFault, match=r"worker exited with code 1\.(?s:.*)no module named sense"):
        supervisor.wait(web, lambda: False, seconds=PATIENCE)
    supervisor.stop()


def test_a_child_that_takes_too_long(supervisor: Supervisor, tmp_path: Path) -> None:
    web = supervisor.start(child(tmp_path, "web", SLEEP))
    with pytest.raises(StartFault, match=r"web was not ready within 0 s"):
        supervisor.wait(web, lambda: False, seconds=0.2)
    supervisor.stop()
    assert not web.alive()


def test_the_dead_are_started_again_after_their_back_off_and_it_is_said(
    supervisor: Supervisor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = supervisor.start(child(tmp_path, "quick", "raise SystemExit(7)"))
    assert quick.process
    quick.process.wait()
    first = quick.process.pid
    now = quick.started_at
    supervisor._look_after(quick, now)
    supervisor._look_after(quick, now + 0.9)
    assert quick.process.pid == first, "not before the back-off is over"
    supervisor._look_after(quick, now + 1.1)
    assert quick.process.pid != first
    quick.process.wait()
    supervisor._look_after(quick, quick.started_at)
    said = capsys.readouterr().out
    assert "quick exited with code 7; starting it again in 1 s" in said
    assert "quick started again" in said
    assert "quick exited with code 7; starting it again in 2 s" in said
    supervisor.stop()


def test_nothing_is_started_once_asked_to_stop(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor._on_signal(15, None)
    with pytest.raises(Stopped):
        supervisor.start(child(tmp_path, "late", SLEEP))
    assert supervisor.children == []


def test_a_second_signal_hurries(supervisor: Supervisor, tmp_path: Path) -> None:
    slow = child(tmp_path, "slow", SLEEP)
    slow.grace = 60
    supervisor.children.append(slow)
    supervisor._on_signal(2, None)
    assert slow.grace == 60
    supervisor._on_signal(2, None)
    assert slow.grace <= 1


def test_notes_that_cannot_be_written_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w")  # noqa: SIM115 - a device without room
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        progress = Progress()
        progress.say("lost")
        progress.plain("lost too")
        with progress.step("doing", "done"):
            pass
        progress.close()
    full.close()  # nothing is left that Python would try to write at its end


def test_a_register_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor = Supervisor(Progress(), tmp_path / "gone" / "children.json")
    started = supervisor.start(child(tmp_path, "web", SLEEP))
    assert started.alive()
    assert "children.json cannot be written (No such file or directory)" in capsys.readouterr().out
    supervisor._look_at_disks(1)
    assert capsys.readouterr().out == "", "once"
    (tmp_path / "gone").mkdir()
    supervisor._look_at_disks(10)
    assert "web" in (tmp_path / "gone" / "children.json").read_text()
    supervisor.stop()


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.ENOSPC, "No space left on device", "web.log"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        subprocess.SubprocessError("Exception occurred in preexec_fn."),
    ],
)
def test_a_child_that_cannot_be_started_now_is_tried_again_with_patience(
    supervisor: Supervisor, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Exception
) -> None:
    quick = supervisor.start(child(tmp_path, "quick", "raise SystemExit(7)"))
    assert quick.process
    quick.process.wait()
    able, start = [False], quick.start_process

    def sometimes() -> subprocess.Popen[bytes]:
        if not able[0]:
            raise fault
        return start()

    quick.start_process = sometimes
    now, delays = time.monotonic(), []
    supervisor._look_after(quick, now)
    for _ in range(8):
        assert quick.start_again_at
        delays.append(quick.start_again_at - now)
        now = quick.start_again_at
        supervisor._look_after(quick, now)
    assert delays == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30])
    able[0] = True
    assert quick.start_again_at
    supervisor._look_after(quick, quick.start_again_at)
    assert quick.process
    said = capsys.readouterr().out
    assert f"quick cannot be started ({fault}); trying again in 30 s" in said
    assert "quick started again" in said
    supervisor.stop()


def test_a_disk_that_runs_full_is_said_once_and_what_waits_starts_when_it_has_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [2**31]
    monkeypatch.setattr(disk, "room", lambda folder: disk.Room(folder, free[0], 2**33))
    supervisor = Supervisor(Progress(), tmp_path / "children.json", disks=[tmp_path])
    waiting = child(tmp_path, "postgres", SLEEP)
    waiting.start_again_at, waiting.failures = 1e12, 9
    supervisor.children.append(waiting)
    moments = iter(range(0, 1000, 10))

    def look(bytes_free: int) -> str:
        free[0] = bytes_free
        supervisor._look_at_disks(next(moments))
        return capsys.readouterr().out

    assert look(2**31) == ""
    assert "is almost full (300 MB of 8.0 GB free)" in look(300 * 2**20)
    assert look(299 * 2**20) == ""
    assert "is full (0 MB of 8.0 GB free): nothing can be recorded" in look(0)
    assert look(2**20) == ""
    assert waiting.start_again_at == 1e12
    assert f"the disk of {tmp_path} has room again" in look(2**30)
    assert waiting.start_again_at < 1000
    assert waiting.failures == 0


def test_what_is_done_beside_watching_may_fail_for_want_of_room(
    supervisor: Supervisor, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def also() -> None:
        calls.append(1)
        if len(calls) > 2:
            supervisor._stop.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    supervisor.watch(also)
    assert len(calls) == 3
    assert "No space left on device" in capsys.readouterr().out
