"""The engines, a package each: what an engine is (`descriptor.Engine`) stands in its ``__init__.py``, how its answers
are read in ``adapter.py``. They are found by looking into this folder, so there is no list to keep.

Descriptors are read here at once; an adapter is imported when it is asked for.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from kvaudit.auditor.engines.descriptor import Engine

if TYPE_CHECKING:
    from kvaudit.auditor.engines.contract import Adapter


def _found() -> Iterator[Engine]:
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            engine: Engine = import_module(f"{__name__}.{module.name}").ENGINE
            if engine.id != module.name:
                raise ValueError(f"the package {module.name} describes {engine.id!r}: give both one name")
            yield engine


ENGINES: Mapping[str, Engine] = {
    engine.id: engine for engine in sorted(_found(), key=lambda engine: engine.order)
}
"""Id -> descriptor, in the order in which adapters are tried and pages show them."""

NAMES = tuple(ENGINES)
RECOGNISABLE = tuple(engine.id for engine in ENGINES.values() if not engine.by_pointers)
"""Engines that show themselves; a pool of pointers has to be declared."""
ALIASES: Mapping[str, str] = {alias: engine.id for engine in ENGINES.values() for alias in engine.aliases}
"""Other spellings of engine names -> the engine's id."""

CACHED_TOKENS_FLAGS: Mapping[str, str] = {
    engine.title: engine.cached_tokens_flag for engine in ENGINES.values() if engine.cached_tokens_flag
}
"""Title of an engine -> the flag with which it reports cached tokens."""


def describe(engine_id: str) -> Engine:
    """The descriptor. Of an engine that this release does not know, one that says nothing of it."""
    return ENGINES.get(engine_id) or Engine(id=engine_id, title=engine_id, order=len(ENGINES))


def get(engine_id: str) -> Adapter:
    """The adapter, imported now; ValueError with a sentence when there is no such engine."""
    if engine_id not in ENGINES:
        raise ValueError(f"there is no engine called {engine_id!r}; known engines are {', '.join(NAMES)}")
    adapter: Adapter = import_module(f"{__name__}.{engine_id}.adapter").ADAPTER
    return adapter
