"""What is asked of a node, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What one allow-listed GET brought: status, redacted body, or the sentence why there is none.

    ``exposed`` names secret fields that the body held in clear before redaction
    (``api_key``); their values are gone. ``status`` 0 means that no answer came. ``dropped``: one came that was too
    large to read (vllm#44691: one label of 22 MB); only this path tells nothing then.
    """

    path: str
    status: int
    body: bytes = b""
    content_type: str = ""
    problem: str = ""
    exposed: tuple[str, ...] = ()
    dropped: bool = False


Answers = Mapping[str, Answer]
"""Path (as in ``Step.path``) -> answer; a path that was not asked is absent."""


@dataclass(frozen=True, slots=True)
class Step:
    """One GET of an engine's reading plan. ``unless`` names an earlier path: when that one
    answered 200 this step is skipped (old and new endpoint names). ``destructive`` marks a read
    that takes data from other readers; it is asked at most once per audit and said so.

    ``identifies`` marks a path that is harmless on every engine. While the engine is not known,
    only these are asked (each path once over all adapters); the rest of the recognised adapter's
    plan follows. Without this, looking for vLLM's ``/metrics`` would drain TensorRT-LLM's.

    ``process`` marks what tells which process answered: enough for a glance over a fresh connection."""

    path: str
    unless: str = ""
    destructive: bool = False
    identifies: bool = False
    process: bool = False
