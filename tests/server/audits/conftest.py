"""Imports are inside: this file is loaded before Django is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.audits.stage import Actor


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Actor:
    """The runner's understudy, on stage."""
    from kvaudit.auditor import runner
    from tests.server.audits.stage import Actor

    understudy = Actor()
    monkeypatch.setattr(runner, "run", understudy)
    return understudy


@pytest.fixture(autouse=True)
def bells(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """What would have been rung for: (kind, run ids), instead of a broker."""
    from kvaudit.server.audits.execution import enqueue as bells

    rung: list[tuple[str, list[int]]] = []
    monkeypatch.setattr(bells, "_send", lambda ids, kind: rung.append((kind.value, list(ids))))
    return rung
