"""What an earlier start left behind is ended; strangers are not touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvaudit.server.ops.process import Child
from kvaudit.server.ops.stale_processes import end_leftovers, remember, start_time
from tests.server.ops.running import members
from tests.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="start times come from /proc")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A group of its own with a leader and a member."""
    process = subprocess.Popen(["sh", "-c", "sleep 600 & exec sleep 600"], start_new_session=True)
    until(lambda: len(members(process.pid)) == 2, "both sleep")
    yield process
    if members(process.pid):
        os.killpg(process.pid, 9)
    process.wait()


def test_a_group_written_down_is_ended(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    register = tmp_path / "children.json"
    child = Child("beat", lambda: sleeper)
    child.start()
    remember(register, [child])
    assert end_leftovers(register, patience=5) == ["beat"]
    until(lambda: members(sleeper.pid) == [], "both ended")
    assert not register.exists()


def test_members_without_their_leader_are_found(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    register = tmp_path / "children.json"
    register.write_text(
        json.dumps([{"name": "web", "group": sleeper.pid, "started": start_time(sleeper.pid)}])
    )
    sleeper.kill()
    sleeper.wait()
    until(lambda: len(members(sleeper.pid)) == 1, "the leader is gone")
    assert end_leftovers(register, patience=5) == ["web"]
    until(lambda: members(sleeper.pid) == [], "the member ended")


def test_a_stranger_with_the_same_number_lives_on(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    register = tmp_path / "children.json"
    register.write_text(json.dumps([{"name": "web", "group": sleeper.pid, "started": "1"}]))
    assert end_leftovers(register, patience=5) == []
    assert len(members(sleeper.pid)) == 2


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"a": 1}', '[{"name": "x"}]', '[{"name":"x","group":"y","started":""}]']
)
def test_a_register_that_makes_no_sense_is_ignored(text: str, tmp_path: Path) -> None:
    register = tmp_path / "children.json"
    register.write_text(text)
    assert end_leftovers(register) == []
    assert end_leftovers(tmp_path / "none.json") == []
