"""Pool and context between any two changes, out of what each node said and how long. Pure but for `snapshots_of`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kvaudit.server.fleet.models import Deployment, NodeSnapshot

MOST_SNAPSHOTS = 5_000

READ_FOR = timedelta(days=1)
"""How long a reading stands for a node that was not read again: then nothing is known."""


@dataclass(frozen=True, slots=True)
class ReadPool:
    """What one node said from ``start`` to ``end``, in tokens; None = unknown."""

    node: str
    role: str
    start: datetime
    end: datetime
    pool: int | None
    context: int | None
    version: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """The deployment between two instants: smallest pool, smallest pool on the prefill side, largest
    context; None where any node's is unknown or none was read."""

    start: datetime
    end: datetime
    pool: int | None
    prefill: int | None
    context: int | None


def snapshots_of(deployment: Deployment, limit: int = MOST_SNAPSHOTS) -> list[ReadPool]:
    """The newest ``limit`` readings of all nodes, oldest first."""
    rows = (
        NodeSnapshot.objects.filter(node__deployment=deployment)
        .order_by("-first_seen", "-pk")
        .values_list("node__name", "role", "first_seen", "last_confirmed", "pool", "context", "version")
    )
    return [ReadPool(*row) for row in reversed(rows[:limit])]


def lasting(seen: Sequence[ReadPool], now: datetime) -> list[ReadPool]:
    """Readings that reach to the node's next one where that came within a day, and no further than a day
    beyond their last confirmation."""
    following: dict[str, ReadPool] = {}
    found = []
    for snapshot in reversed(seen):
        after = following.get(snapshot.node)
        until = min(snapshot.end + READ_FOR, after.start if after else now)
        found.append(replace(snapshot, end=max(snapshot.end, until)))
        following[snapshot.node] = snapshot
    return found[::-1]


def steps(seen: Sequence[ReadPool], declared_context: int | None) -> list[Step]:
    """The deployment between any two changes. A node whose pool is unknown makes the smallest unknown."""
    edges: list[tuple[datetime, bool, ReadPool]] = []
    for snapshot in seen:
        edges += [(snapshot.start, True, snapshot), (snapshot.end, False, snapshot)]
    edges.sort(key=lambda edge: edge[0])
    there: dict[str, ReadPool] = {}
    found: list[Step] = []
    for number, (at, begins, snapshot) in enumerate(edges):
        if begins:
            there[snapshot.node] = snapshot
        elif there.get(snapshot.node) is snapshot:
            del there[snapshot.node]
        until = edges[number + 1][0] if number + 1 < len(edges) else at
        if until <= at or not there:
            continue
        step = _step(at, until, list(there.values()), declared_context)
        last = found[-1] if found else None
        same = last and (last.pool, last.prefill, last.context, last.end) == (
            step.pool,
            step.prefill,
            step.context,
            step.start,
        )
        if last and same:
            found[-1] = replace(last, end=step.end)
        else:
            found.append(step)
    return found


def _step(start: datetime, end: datetime, there: Sequence[ReadPool], declared: int | None) -> Step:
    contexts = [snapshot.context for snapshot in there if snapshot.context is not None]
    if declared is not None:
        contexts.append(declared)
    return Step(
        start,
        end,
        _least([snapshot.pool for snapshot in there]),
        _least([snapshot.pool for snapshot in there if snapshot.role != "decode"]),
        max(contexts, default=None),
    )


def _least(pools: Sequence[int | None]) -> int | None:
    known = [pool for pool in pools if pool is not None]
    return min(known) if known and len(known) == len(pools) else None
