"""The supervisor: order of stopping, restarts, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvaudit.ops.process import Child, spawn
from kvaudit.ops.progress import Progress
from kvaudit.ops.supervisor import StartFault, Stopped, Supervisor
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

    return Child(name, start, tier=tier, log_path=log, grace=5)


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
