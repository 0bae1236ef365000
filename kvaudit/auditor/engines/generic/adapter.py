"""Any shared pool that tells its numbers in JSON: session slots, connections, buffers, an engine
without an adapter. Where the numbers stand is said with JSON pointers (RFC 6901).

``capacity`` is what the pool holds, ``max_request`` the largest request it accepts, ``in_use`` what
is taken now. With ``shards`` (a pointer to an array or object of shards) ``capacity`` and ``in_use``
are looked up inside each shard, and the smallest capacity counts: a request lives in one shard.
``version`` and ``model`` may be pointed at as well; ``path`` is no pointer but the path of the
document when it is not the node's own address.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kvaudit.auditor.engines import _json
from kvaudit.auditor.engines.answers import Answers, Step
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.engines.generic import ENGINE
from kvaudit.auditor.engines.generic.pointers import MISSING, follow, pointer_problem
from kvaudit.auditor.readings import EngineFacts, RankPool, Reading, smallest_pool, text, tokens, unknown

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect


@dataclass(frozen=True)
class Generic:
    """The adapter for one node's pointers. Without pointers it reads nothing and says so."""

    id: ClassVar[str] = ENGINE.id
    title: ClassVar[str] = ENGINE.title
    gets: ClassVar[frozenset[str]] = frozenset()
    posts: ClassVar[frozenset[str]] = frozenset()

    pointers: tuple[tuple[str, str], ...] = ()
    path: str = ""

    @property
    def plan(self) -> Sequence[Step]:
        # It identifies: other engines' paths mean nothing on a service that is none.
        return (Step(self.path, identifies=True),) if self.pointers else ()

    def dialect(self) -> Dialect:
        raise ValueError("a generic pool is no language model; its tenants are audited by the session check")

    def recognises(self, answers: Answers) -> bool:
        """A generic pool has no marks of its own: it is what it was declared to be, as long as
        its document is JSON. Without pointers nothing is recognised."""
        document = _json.parsed(answers.get(self.path))
        return bool(self.pointers) and isinstance(document, (dict, list))

    def facts(self, answers: Answers) -> EngineFacts:
        document = _json.parsed(answers.get(self.path))
        pointers = dict(self.pointers)
        why = "" if document is not None else _json.why_not(answers, self.path)
        ranks, notes = _shards(document, pointers, self._source, why)
        in_use = _in_use(document, pointers)
        if "in_use" in pointers and in_use is None:
            notes.append(f"{self._source(pointers['in_use'])} is no number of at least 0: use is unknown")
        return EngineFacts(
            engine=self.id,
            version=self._text(document, pointers, "version", why),
            model=self._text(document, pointers, "model", why),
            revision=unknown("a generic pool has no revision"),
            context=self._count(document, pointers.get("max_request"), "max_request", why),
            pool=smallest_pool(ranks),
            input_limit=unknown("a generic pool tells no input limit"),
            role=unknown("a generic pool has no role"),
            process=unknown("a generic pool tells no process identity"),
            ranks=ranks,
            counters={} if in_use is None else {"in_use": in_use},
            notes=tuple(notes),
        )

    def _source(self, pointer: str) -> str:
        where = _json.label(pointer, 120) if pointer else "the whole document"
        return f"GET {self.path or _json.OWN_ADDRESS} at {where}"

    def _count(self, document: Any, pointer: str | None, name: str, why: str) -> Reading[int]:
        if pointer is None:
            return unknown(f"no pointer to {name} was given")
        return unknown(why) if why else count(document, pointer, self._source(pointer))

    def _text(self, document: Any, pointers: Mapping[str, str], name: str, why: str) -> Reading[str]:
        pointer = pointers.get(name)
        if pointer is None:
            return unknown(f"no pointer to {name} was given")
        found = follow(document, pointer)
        if why or found is MISSING:
            return unknown(why or f"{self._source(pointer)}: nothing is there")
        return text(found, self._source(pointer))


def count(document: Any, pointer: str, source: str) -> Reading[int]:
    """A positive whole number at a pointer. Digits in quotes are text, not a number."""
    found = follow(document, pointer)
    if found is MISSING:
        return unknown(f"{source}: nothing is there")
    if isinstance(found, str):
        return unknown(f"{source} is text, not a number")
    return tokens(found, source)


def _shards(
    document: Any, pointers: Mapping[str, str], source: Any, why: str
) -> tuple[tuple[RankPool, ...], list[str]]:
    capacity = pointers.get("capacity")
    if capacity is None or why:
        return (RankPool("0", unknown(why or "no pointer to capacity was given")),), []
    if "shards" not in pointers:
        return (RankPool("0", count(document, capacity, source(capacity))),), []
    where = source(pointers["shards"])
    shards = _listed(document, pointers["shards"])
    if not shards:
        return (
            RankPool("0", unknown(f"{where}: no array or object of at most {_json.LONGEST_LIST} shards")),
        ), []
    inner = _json.label(capacity, 120) if capacity else "itself"
    pools = tuple(
        RankPool(
            _json.label(name),
            count(shard, capacity, f"{where}, shard {_json.label(name)}, at {inner}"),
        )
        for name, shard in shards
    )
    return pools, [f"{len(pools)} shards; the smallest counts"] if len(pools) > 1 else []


def _listed(document: Any, pointer: str) -> list[tuple[str, Any]]:
    found = follow(document, pointer)
    if isinstance(found, dict) and len(found) <= _json.LONGEST_LIST:
        return list(found.items())
    return [(str(position), shard) for position, shard in enumerate(_json.sequence(found))]


def _in_use(document: Any, pointers: Mapping[str, str]) -> float | None:
    """What is taken now, over all shards; None when a part of it is no number of at least 0."""
    pointer = pointers.get("in_use")
    if pointer is None or document is None:
        return None
    parts = (
        [document]
        if "shards" not in pointers
        else [each for _, each in _listed(document, pointers["shards"])]
    )
    total = 0.0
    for part in parts:
        value = follow(part, pointer)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
            return None
        total += value
    return total if parts and math.isfinite(total) else None


def with_pointers(pointers: Mapping[str, str] | Iterable[tuple[str, str]], path: str = "") -> Adapter:
    """The generic adapter for one node. ``path`` (or a pointer named ``path``) is asked below the
    node's address; "" is the address itself. ValueError with a sentence for a wrong pointer."""
    given = dict(pointers)
    path = given.pop("path", path)
    if path and not (path.startswith("/") and path.isascii() and path.isprintable() and " " not in path):
        raise ValueError(
            f"the path of a generic pool is {path!r:.80}: it must begin with / and be plain ASCII"
        )
    for name, pointer in given.items():
        problem = pointer_problem(name, pointer)
        if problem:
            raise ValueError(problem)
    if "capacity" not in given:
        raise ValueError("a generic pool needs a pointer to its capacity, for instance capacity=/pool/size")
    return Generic(tuple(sorted(given.items())), path)


ADAPTER = Generic()
