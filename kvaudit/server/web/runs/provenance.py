"""Whose text the answers of a check were, as far as that can be told: own, another request's, unknown.

Of unknown text only lengths and keyed hashes are here: it may be a customer's, and opening it is its own page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.server.web.kit.measure_values import count, rows, tokens

MOST = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers of one way to ask. ``foreign``: long ones with words that neither their prompts nor the model's
    short answers hold."""

    mode: str
    own: int
    others: int
    foreign: int
    long: int
    foreign_controls: int
    controls: int


@dataclass(frozen=True, slots=True)
class TraceRow:
    """Words of ours that came back in another request's answer; ``where``: "text", or what else held them."""

    kind: str
    words: str
    where: str
    tokens: int | None
    planted_by: str
    read_by: str
    verified: bool


@dataclass(frozen=True, slots=True)
class UnknownAnswer:
    """``round`` counts from 1, None where it is not known."""

    request: str
    tokens: int | None
    round: int | None
    characters: int
    hmac: str


@dataclass(frozen=True, slots=True)
class Provenance:
    asked: Sequence[Asked]
    traces: Sequence[TraceRow]
    unknown: Sequence[UnknownAnswer] = ()

    @property
    def found(self) -> bool:
        """Whether anything is not the prompts' own."""
        return bool(self.traces) or any(row.others or row.foreign for row in self.asked)


def provenance_of(measures: Mapping[str, Any]) -> Provenance | None:
    """None where a result says nothing of it: a passive check, or an earlier release."""
    stored = measures.get("provenance")
    if not isinstance(stored, Mapping):
        return None
    modes = stored.get("by_mode")
    asked = [
        _asked(str(mode), counts)
        for mode, counts in (modes.items() if isinstance(modes, Mapping) else ())
        if isinstance(counts, Mapping)
    ]
    traces = [_trace(row) for row in rows(stored.get("traces"))[:MOST]]
    asked = [row for row in asked if row.own or row.others or row.long]
    unknown = [_unknown(row) for row in rows(measures.get("unknown_answers"))[:MOST]]
    return Provenance(asked, traces, unknown) if asked or traces else None


def _asked(mode: str, counts: Mapping[str, Any]) -> Asked:
    names = ("own", "others", "foreign_words", "answers", "controls_foreign_words", "controls")
    return Asked(mode, *(count(counts.get(name)) or 0 for name in names))


def _trace(row: Mapping[str, Any]) -> TraceRow:
    return TraceRow(
        kind=str(row.get("kind") or ""),
        words=str(row.get("words") or ""),
        where=str(row.get("where") or "").removeprefix("choices."),
        tokens=count(row.get("tokens")),
        planted_by=str(row.get("planted_by") or ""),
        read_by=str(row.get("read_by") or ""),
        verified=row.get("verified") is True,
    )


def _unknown(row: Mapping[str, Any]) -> UnknownAnswer:
    at = count(row.get("round"))
    return UnknownAnswer(
        request=str(row.get("cell") or ""),
        tokens=tokens(row.get("tokens")),
        round=None if at is None else at + 1,
        characters=count(row.get("characters")) or 0,
        hmac=str(row.get("hmac") or "")[:64],
    )
