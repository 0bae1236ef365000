"""Compares two readings of a node's configuration. Pure; what counts as a change is decided here and nowhere
else.

A reading is compared with the *reference*, the last significant fingerprint, not with the reading
before it: a pool that creeps by 1 % at every restart is a change once it has crept by 2 %.

Unknown is not a value. A field that could not be read this time, or is read for the first time, has
not been seen to move, so:

* known -> unknown: no change; the reference keeps what it knew, and the next known value is
  compared with that. The check that needs the number is inconclusive meanwhile.
* unknown -> known: *learnt*, recorded but not significant, and the reference is completed with it.
  Nothing is lost: what was judged while a number was unknown did not pass on it.
* A component (a KV connector, an offload tier) is absent rather than unknown. One that appears after
  a restart is a change; in the same process it has only become visible (its metrics exist from the
  first use on). One that vanishes is like a field that is not read.
* Another engine at the same address is a change, and nothing of the old reference is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kvaudit.auditor.checks.pool.numbers import required_tokens
from kvaudit.auditor.readings import FieldChange, Fingerprint, diff

_COMPONENT = "components."


@dataclass(frozen=True, slots=True)
class Comparison:
    """``changes`` have both sides known (or are a new component); ``learnt`` were unknown before.
    ``reference`` is what the next reading is compared with."""

    changes: tuple[FieldChange, ...]
    learnt: tuple[FieldChange, ...]
    reference: Fingerprint

    @property
    def significant(self) -> bool:
        return any(change.significant for change in self.changes)


def compare(
    reference: Fingerprint, seen: Fingerprint, *, limits: Iterable[int] = (), same_process: bool = False
) -> Comparison:
    """Compare a reading with the reference. ``limits`` are token counts whose crossing counts
    (`crossing_limits`); ``same_process`` says that both come from the same start of the process."""
    other_engine = reference.exact.get("engine") != seen.exact.get("engine")
    changes: list[FieldChange] = []
    learnt: list[FieldChange] = []
    for change in diff(reference, seen, limits=limits):
        if change.after is None:
            continue
        appeared = change.name.startswith(_COMPONENT) and not same_process
        if change.before is not None or other_engine or appeared:
            changes.append(change)
        else:
            learnt.append(replace(change, significant=False))
    if other_engine:
        return Comparison(tuple(changes), tuple(learnt), seen)
    moved = any(change.significant for change in changes)
    return Comparison(tuple(changes), tuple(learnt), _next_reference(reference, seen, moved))


def crossing_limits(*, context: int | None, headroom: float, edge_limit: int | None) -> tuple[int, ...]:
    """Context, headroom x context and edge limit in tokens, as far as they are known."""
    limits = [context, required_tokens(headroom, context) if context else None, edge_limit]
    return tuple(limit for limit in limits if limit)


def matches(first: Fingerprint, second: Fingerprint, limits: Iterable[int] = ()) -> bool:
    """Whether two nodes have the same configuration, as far as both are known."""
    return not compare(first, second, limits=limits, same_process=True).significant


def in_words(changes: Iterable[FieldChange]) -> str:
    """``pool 681280 -> 2040000, version 0.5.19 -> 0.5.22``"""
    return ", ".join(
        f"{change.name.removeprefix('settings.')} {_word(change.before)} -> {_word(change.after)}"
        for change in changes
    )


def as_json(changes: Iterable[FieldChange]) -> list[dict[str, Any]]:
    return [
        {
            "name": change.name,
            "before": change.before,
            "after": change.after,
            "significant": change.significant,
        }
        for change in changes
    ]


def _next_reference(reference: Fingerprint, seen: Fingerprint, moved: bool) -> Fingerprint:
    """After a significant change: what was seen, with unknown fields kept. Else: the reference,
    with learnt fields added (and pools left where they were, so that creep adds up)."""
    known_now = {name: value for name, value in seen.exact.items() if value is not None}
    exact = {**seen.exact, **reference.exact, **known_now}
    known_pools = {name: value for name, value in seen.pools.items() if value is not None}
    known_before = {name: value for name, value in reference.pools.items() if value is not None}
    pools = (
        {**seen.pools, **known_before, **known_pools}
        if moved
        else {**seen.pools, **known_pools, **known_before}
    )
    return Fingerprint(exact, pools)


def _word(value: Any) -> str:
    text = "unknown" if value is None else str(value)
    return (text if len(text) <= 60 else text[:57] + "...") or "present"
