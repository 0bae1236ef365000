"""The short-lived process that drops old evidence, beside ``kvaudit up``: its own role, never in the way."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kvaudit.server.ops import evidence_expiry
from kvaudit.server.ops.launch import Launch, child_environment
from kvaudit.server.ops.process import spawn
from kvaudit.server.ops.state import State
from tests.waiting import until


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    env = {"DATABASE_URL": "postgres://kvaudit_app@x/kvaudit", "PATH": "/usr/bin:/bin"}
    return Launch(
        State(tmp_path), "127.0.0.1", 8000, env, retention_url="postgres://kvaudit_retention@x/kvaudit"
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Environments of what was started: a process that ends with the code in EXIT, or waits for a minute."""
    seen: list[dict[str, str]] = []

    def instead(command: list[str], *, env: dict[str, str], **more: Any) -> Any:
        assert command[1:] == ["-m", "django", "expire_evidence"]
        seen.append(env)
        code = env.get("EXIT")
        line = "import time; time.sleep(60)" if code is None else f"raise SystemExit({code})"
        return spawn([sys.executable, "-c", line], env=env, **more)

    monkeypatch.setattr(evidence_expiry, "spawn", instead)
    return seen


def until_over(kept: evidence_expiry.Retaining) -> None:
    def over() -> bool:
        kept.look()
        return kept._process is None

    until(over, "the process to end")


def test_nothing_runs_before_it_is_due(launch: Launch, started: list[dict[str, str]]) -> None:
    evidence_expiry.Retaining(launch, Said()).look()  # type: ignore[arg-type]
    assert started == []


def test_a_pass_runs_as_its_own_role_and_once(
    launch: Launch, started: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_expiry, "FIRST", 0.0)
    launch.env["EXIT"], said = "0", Said()
    kept = evidence_expiry.Retaining(launch, said)  # type: ignore[arg-type]
    kept.look()
    until_over(kept)
    kept.look()
    assert [env["DATABASE_URL"] for env in started] == [launch.retention_url]
    assert said.lines == []


def test_a_pass_that_failed_is_said(
    launch: Launch, started: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_expiry, "FIRST", 0.0)
    launch.env["EXIT"], said = "3", Said()
    kept = evidence_expiry.Retaining(launch, said)  # type: ignore[arg-type]
    kept.look()
    until_over(kept)
    assert "old evidence could not be dropped" in said.lines[0]


def test_one_that_runs_is_ended_with_the_rest(
    launch: Launch, started: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_expiry, "FIRST", 0.0)
    kept = evidence_expiry.Retaining(launch, Said())  # type: ignore[arg-type]
    kept.look()
    process = kept._process
    assert process is not None
    kept.end()
    assert process.poll() is not None


def test_without_a_role_all_evidence_stays(
    launch: Launch, started: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_expiry, "FIRST", 0.0)
    launch.retention_url = ""
    evidence_expiry.Retaining(launch, Said()).look()  # type: ignore[arg-type]
    assert started == []


def test_no_other_child_knows_the_role() -> None:
    composed = {"DATABASE_RETENTION_URL": "x", "DATABASE_URL": "y"}
    assert "DATABASE_RETENTION_URL" not in child_environment(composed)
