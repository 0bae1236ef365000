"""Engine adapters, one module each. `kvaudit.auditor.engines.fetch` fetches, recognises and parses."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvaudit.auditor.engines.contract import Engine

MODULES = ("sglang", "vllm", "trtllm", "generic")

_registered: dict[str, Engine] = {}


def register(engine: Engine) -> Engine:
    """Make the adapter known under its ``id``; called once at the end of its module."""
    _registered[engine.id] = engine
    return engine


def get(engine_id: str) -> Engine:
    """The adapter with this id; ValueError with a sentence when there is none."""
    if engine_id not in MODULES:
        raise ValueError(f"there is no engine called {engine_id!r}; known engines are {', '.join(MODULES)}")
    import_module(f"kvaudit.auditor.engines.{engine_id}")
    return _registered[engine_id]
