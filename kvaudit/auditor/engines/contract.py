"""What an engine adapter must say, and nothing more.

An adapter names the only paths that may be asked of its engine, and turns the answers into `EngineFacts` with a pure
function. The fetching is the same for all and lives in `kvaudit.auditor.engines.reading`; docs/engines.md shows how to
add one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from kvaudit.auditor.readings import EngineFacts

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect


@dataclass(frozen=True, slots=True)
class Answer:
    """What one allow-listed GET brought: status, redacted body, or the sentence why there is none.

    ``exposed`` names secret fields that the body held in clear before redaction
    (``api_key``); their values are gone. ``status`` 0 means that no answer came.
    """

    path: str
    status: int
    body: bytes = b""
    content_type: str = ""
    problem: str = ""
    exposed: tuple[str, ...] = ()


Answers = Mapping[str, Answer]
"""Path (as in ``Step.path``) -> answer; a path that was not asked is absent."""


@dataclass(frozen=True, slots=True)
class Step:
    """One GET of an engine's reading plan. ``unless`` names an earlier path: when that one
    answered 200 this step is skipped (old and new endpoint names). ``destructive`` marks a read
    that takes data from other readers; it is asked at most once per audit and said so.

    ``identifies`` marks a path that is harmless on every engine. While the engine is not known,
    only these are asked (each path once over all adapters); the rest of the recognised adapter's
    plan follows. Without this, looking for vLLM's ``/metrics`` would drain TensorRT-LLM's."""

    path: str
    unless: str = ""
    destructive: bool = False
    identifies: bool = False


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
