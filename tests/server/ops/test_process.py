"""Children: how they die with us, stop, and are started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvaudit.server.ops.process import Child, catches_interrupt, spawn
from tests.server.ops.running import members
from tests.waiting import PATIENCE, until

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc")
PYTHON = sys.executable


def child(tmp_path: Path, code: str, grace: float = PATIENCE) -> Child:
    log = tmp_path / "child.log"

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return spawn([PYTHON, "-u", "-c", code], env={"PATH": os.environ["PATH"]}, log=output)

    return Child("child", start, grace=grace, log_path=log)


def test_back_off_doubles_to_thirty_seconds_and_forgives_a_steady_child(tmp_path: Path) -> None:
    quick = child(tmp_path, "")
    assert [quick.note_death(now=1.0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert quick.note_death(now=quick.started_at + 61) == 1
    assert quick.start_again_at == quick.started_at + 62


@linux
def test_stop_ends_grandchildren_too(tmp_path: Path) -> None:
    code = "import subprocess, time; subprocess.Popen(['sleep', '600']); print('up'); time.sleep(600)"
    one = child(tmp_path, code)
    one.start()
    assert one.process
    group = one.process.pid
    until(lambda: "up" in one.last_words() and len(members(group)) == 2, "both started")
    one.stop()
    until(lambda: members(group) == [], "killed together")
    assert one.exit_words() == "was ended by SIGTERM"
    one.stop()  # once more does no harm


@linux
def test_one_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(600)"
    )
    deaf = child(tmp_path, code, grace=0.2)
    deaf.start()
    until(lambda: "deaf" in deaf.last_words(), "started")
    deaf.stop()
    assert deaf.exit_words() == "was ended by SIGKILL"


@linux
def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    parent = f"""
import os, subprocess, sys
from kvaudit.server.ops.process import spawn
with open({str(tmp_path / "log")!r}, "ab") as log:
    process = spawn(["sleep", "600"], env={{"PATH": os.environ["PATH"]}}, log=log)
print(process.pid, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [PYTHON, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout
    assert process.stdin
    group = int(process.stdout.readline())
    assert members(group)
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    until(lambda: not members(group), "the child ended with its parent")


@linux
def test_a_process_of_a_pool_dies_with_its_worker() -> None:
    """Otherwise it would go on sending prompts, beside the worker that has taken the run over."""
    worker = """
import os, signal, time
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.lint_settings"
import django
django.setup()
from celery.signals import worker_process_init
pid = os.fork()
if not pid:
    worker_process_init.send(sender=None)
    print(os.getpid(), flush=True)
time.sleep(600)
"""
    process = subprocess.Popen(
        [PYTHON, "-c", worker], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3],
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout
    assert int(process.stdout.readline()) in members(process.pid)
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        until(lambda: members(process.pid) == [], "ended with it")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_words_about_the_end(tmp_path: Path) -> None:
    three = child(tmp_path, "print('last words'); raise SystemExit(3)")
    three.start()
    assert three.process
    three.process.wait()
    assert three.exit_words() == "exited with code 3"
    assert three.last_words() == "last words"
    assert not three.alive()


@linux
@pytest.mark.parametrize(("handling", "caught"), [("lambda *_: None", True), ("signal.SIG_DFL", False)])
def test_whether_a_process_catches_interrupts(handling: str, caught: bool) -> None:
    code = (
        f"import signal, sys; signal.signal(signal.SIGINT, {handling}); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([PYTHON, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert catches_interrupt(process.pid) is caught
        process.kill()
    assert catches_interrupt(process.pid) is False
