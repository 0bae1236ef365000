"""What was left out of a start is started once, when somebody has asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvaudit.server.ops.addons import Addon, fulfil, request_file
from kvaudit.server.ops.launch import Launch
from kvaudit.server.ops.state import State


class Supervising:
    """Notes what would be started and said."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.progress = self

    def say(self, text: str) -> None:
        self.did.append(text)

    def start(self, child: Any) -> None:
        self.did.append(f"start {child}")


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    (tmp_path / "run").mkdir()
    return Launch(State(tmp_path), "127.0.0.1", 8000, {})


def a_lab(supervisor: Any) -> list[Addon]:
    return [Addon("lab", lambda launch: ["lab"], lambda launch, given: supervisor.did.append("import"))]  # type: ignore[list-item]


def test_nothing_is_started_unasked(launch: Launch) -> None:
    supervisor = Supervising()
    fulfil(launch, supervisor, a_lab(supervisor))  # type: ignore[arg-type]
    assert supervisor.did == []


def test_what_was_asked_for_is_started_once(launch: Launch) -> None:
    supervisor = Supervising()
    left_out = a_lab(supervisor)
    for _ in range(2):
        request_file(launch).touch()
        fulfil(launch, supervisor, left_out)  # type: ignore[arg-type]
    assert supervisor.did == ["the lab fleet was asked for on the page", "start lab", "import"]
    assert left_out == []


def test_the_wish_is_taken_away_before_it_is_fulfilled(launch: Launch) -> None:
    supervisor = Supervising()
    request_file(launch).touch()
    fulfil(launch, supervisor, a_lab(supervisor))  # type: ignore[arg-type]
    assert not request_file(launch).exists()
