"""Defines what an engine adapter must implement, and nothing more.

An adapter names the only paths that may be asked of its engine, and turns the answers into `EngineFacts` with a pure
function. The fetching is the same for all and lives in `kvaudit.auditor.engines.fetch`; docs/engines.md shows how to
add one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from kvaudit.auditor.engines.answers import Answers, Step
from kvaudit.auditor.readings import EngineFacts

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect


@runtime_checkable
class Adapter(Protocol):
    """How an engine is read. ``adapter.py`` of each engine ends in an instance, ``ADAPTER``."""

    id: ClassVar[str]
    title: ClassVar[str]

    @property
    def plan(self) -> Sequence[Step]:
        """GETs in order; with ``gets`` and ``posts`` this is the allow-list of the transport.
        A class attribute serves as well; `kvaudit.auditor.engines.generic.adapter` has one plan per node."""
        ...

    gets: ClassVar[frozenset[str]]
    """Further GET paths that checks may ask, outside the plan (exposure: ``/openapi.json``)."""
    posts: ClassVar[frozenset[str]]
    """POST paths that active checks may use (completions, tokenize)."""

    def dialect(self) -> Dialect:
        """How it is asked for completions; ValueError with a sentence where it serves none."""
        ...

    def recognises(self, answers: Answers) -> bool:
        """Whether these answers can only have come from this engine. Pure, never raises."""
        ...

    def facts(self, answers: Answers) -> EngineFacts:
        """The facts in these answers. Pure; arbitrary bytes never raise and never make a known
        reading out of nonsense."""
        ...
