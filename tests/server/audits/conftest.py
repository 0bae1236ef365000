"""Imports are inside: this file is loaded before Django is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.audits.builders import FakeRunner


@pytest.fixture
def fake_runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    """The runner's understudy, on stage."""
    from kvaudit.auditor import runner
    from tests.server.audits.builders import FakeRunner

    fake = FakeRunner()
    monkeypatch.setattr(runner, "run", fake)
    return fake


@pytest.fixture(autouse=True)
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """What would have been rung for: (kind, run ids), instead of a broker."""
    from kvaudit.server.audits.execution import enqueue

    rung: list[tuple[str, list[int]]] = []
    monkeypatch.setattr(enqueue, "_send", lambda ids, kind: rung.append((kind.value, list(ids))))
    return rung
