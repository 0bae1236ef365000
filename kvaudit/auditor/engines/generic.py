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
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kvaudit.auditor.engines import _json, register
from kvaudit.auditor.engines.contract import Answers, Engine, Step
from kvaudit.auditor.readings import EngineFacts, RankPool, Reading, smallest_pool, text, tokens, unknown

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect

POINTERS = ("capacity", "max_request", "in_use", "shards", "version", "model")
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")


class _Missing:
    """What a pointer finds where there is nothing; null is something."""


_MISSING = _Missing()


def follow(document: Any, pointer: str) -> Any:
    """The value that an RFC 6901 pointer names, or `_MISSING`. "" names the whole document."""
    place = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and _INDEX.match(key) and int(key) < len(place):
            place = place[int(key)]
        else:
            return _MISSING
    return place


def pointer_problem(name: str, pointer: str) -> str:
    """A sentence when this is no JSON pointer that the generic engine knows; "" when it is."""
    if name not in POINTERS:
        return f"there is no generic pointer called {name!r}; there are {', '.join(POINTERS)} and path"
    if pointer and not pointer.startswith("/"):
        return f"the pointer {name} is {pointer!r:.80}: a JSON pointer is empty or begins with /"
    if _BAD_ESCAPE.search(pointer):
        return f"the pointer {name} is {pointer!r:.80}: write ~ as ~0 and / as ~1"
    return ""


@dataclass(frozen=True)
class Generic:
    """The adapter for one node's pointers. Without pointers it reads nothing and says so."""

    id: ClassVar[str] = "generic"
    title: ClassVar[str] = "generic pool"
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
        if why or found is _MISSING:
            return unknown(why or f"{self._source(pointer)}: nothing is there")
        return text(found, self._source(pointer))


def count(document: Any, pointer: str, source: str) -> Reading[int]:
    """A positive whole number at a pointer. Digits in quotes are text, not a number."""
    found = follow(document, pointer)
    if found is _MISSING:
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


def with_pointers(pointers: Mapping[str, str] | Iterable[tuple[str, str]], path: str = "") -> Engine:
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


register(Generic())
