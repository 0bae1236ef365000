"""Pool and context over time: the smallest pool as steps, the context, what the pool must hold, and the
danger zone between pool and context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone

from kvaudit.fleet.models import Deployment, NodeSnapshot
from kvaudit.web import moments
from kvaudit.web.figures import events
from kvaudit.web.figures.events import Mark
from kvaudit.web.figures.frame import Cell, Figure, Trace, Twin, instant, layout, local, said

ROWS = 50
MOST_SNAPSHOTS = 5_000
MOST_LINES = 8
"""Nodes that get a line of their own; beyond that only the smallest is drawn."""

READ_FOR = timedelta(days=1)
"""How long a reading stands for a node that was not read again: then nothing is known."""


@dataclass(frozen=True, slots=True)
class Seen:
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


def figure_of(deployment: Deployment) -> Figure:
    found = snapshots_of(deployment, ROWS)
    return Figure(
        name="capacity",
        title=f"Pool and context of {deployment.slug} over time",
        sentence="The smallest KV pool against the context. Below the dashed line it lacks its headroom; in the shaded "
        "zone a prompt is accepted that the pool cannot hold.",
        url=reverse("figure", args=[deployment.slug, "capacity"]),
        twin=Twin(COLUMNS, [_row(each) for each in reversed(found)]),
        empty="" if found else "No node has been read yet, so pool and context are unknown.",
    )


COLUMNS = ("From", "Until", "Node", "Role", "Pool (tokens)", "Context (tokens)", "Version")


def _row(seen: Seen) -> list[Cell]:
    return [
        moments.stamp(seen.start),
        moments.stamp(seen.end),
        seen.node,
        seen.role,
        seen.pool,
        seen.context,
        seen.version or None,
    ]


def snapshots_of(deployment: Deployment, limit: int = MOST_SNAPSHOTS) -> list[Seen]:
    """The newest ``limit`` readings of all nodes, oldest first."""
    rows = (
        NodeSnapshot.objects.filter(node__deployment=deployment)
        .order_by("-first_seen", "-pk")
        .values_list("node__name", "role", "first_seen", "last_confirmed", "pool", "context", "version")
    )
    return [Seen(*row) for row in reversed(rows[:limit])]


def draw(deployment: Deployment, now: datetime | None = None) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout."""
    changes = [mark for mark in events.marks_of(deployment, limit=2_000) if mark.lane == events.CAPACITY]
    return build(
        snapshots_of(deployment), changes, deployment.headroom, deployment.context, now or timezone.now()
    )


def lasting(seen: Sequence[Seen], now: datetime) -> list[Seen]:
    """Readings that reach to the node's next one where that came within a day, and no further than a day
    beyond their last confirmation."""
    following: dict[str, Seen] = {}
    found = []
    for each in reversed(seen):
        after = following.get(each.node)
        until = min(each.end + READ_FOR, after.start if after else now)
        found.append(replace(each, end=max(each.end, until)))
        following[each.node] = each
    return found[::-1]


def steps(seen: Sequence[Seen], declared_context: int | None) -> list[Step]:
    """The deployment between any two changes. A node whose pool is unknown makes the smallest unknown."""
    edges: list[tuple[datetime, bool, Seen]] = []
    for each in seen:
        edges += [(each.start, True, each), (each.end, False, each)]
    edges.sort(key=lambda edge: edge[0])
    there: dict[str, Seen] = {}
    found: list[Step] = []
    for number, (at, begins, each) in enumerate(edges):
        if begins:
            there[each.node] = each
        elif there.get(each.node) is each:
            del there[each.node]
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


def _step(start: datetime, end: datetime, there: Sequence[Seen], declared: int | None) -> Step:
    contexts = [each.context for each in there if each.context is not None]
    if declared is not None:
        contexts.append(declared)
    return Step(
        start,
        end,
        _least([each.pool for each in there]),
        _least([each.pool for each in there if each.role != "decode"]),
        max(contexts, default=None),
    )


def _least(pools: Sequence[int | None]) -> int | None:
    known = [pool for pool in pools if pool is not None]
    return min(known) if known and len(known) == len(pools) else None


def build(
    seen: Sequence[Seen],
    changes: Sequence[Mark],
    headroom: float,
    declared_context: int | None,
    now: datetime,
) -> tuple[list[Trace], dict[str, Any]]:
    """Pure."""
    lasted = lasting(seen, now)
    found = steps(lasted, declared_context)
    data = [_zone(found)]
    nodes = list(dict.fromkeys(each.node for each in seen))
    if 1 < len(nodes) <= MOST_LINES:
        data += [_node_line(node, [each for each in lasted if each.node == node]) for node in nodes]
    data += [
        _line(found, "smallest pool", [step.pool for step in found], "--accent", 3, "solid"),
        _line(found, "context", [step.context for step in found], "--ink", 2, "solid"),
        _line(
            found,
            f"context × {headroom:g}, what the pool must hold",
            [None if step.context is None else round(step.context * headroom) for step in found],
            "--mark",
            2,
            "dash",
        ),
        _changes(changes, found),
    ]
    shown = layout(
        height=320,
        x={
            "type": "date",
            "tickangle": 0,
            "title": f"time in {said(timezone.get_current_timezone_name(), limit=60)}",
        },
        y={"title": "tokens", "rangemode": "tozero", "tickformat": "~s"},
    )
    if found:
        start, margin = found[0].start, max((now - found[0].start) * 0.015, timedelta(minutes=2))
        start = max(start, now - events.LONGEST_BACK)
        shown["xaxis"]["range"] = [local(start - margin), local(now + margin)]
    return [trace for trace in data if trace["x"]], shown


def _runs(found: Sequence[Step], values: Sequence[int | None]) -> Iterator[tuple[Step, int, bool]]:
    """Steps with a value, and whether each goes on where the one before ended."""
    last_end: datetime | None = None
    for step, value in zip(found, values, strict=True):
        if value is None:
            last_end = None
            continue
        yield step, value, last_end == step.start
        last_end = step.end


def _line(
    found: Sequence[Step], name: str, values: Sequence[int | None], colour: str, width: float, dash: str
) -> Trace:
    x: list[int | None] = []
    y: list[int | None] = []
    texts: list[str] = []
    for step, value, goes_on in _runs(found, values):
        if x and not goes_on:
            x, y, texts = [*x, None], [*y, None], [*texts, ""]
        text = said(f"{name}: {value:,} tokens", f"{instant(step.start)} to {instant(step.end)}")
        x += [local(step.start), local(step.end)]
        y += [value, value]
        texts += [text, text]
    return {
        "type": "scatter",
        "name": name,
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"color": colour, "width": width, "dash": dash},
        "hoverinfo": "text",
        "hovertext": texts,
    }


def _zone(found: Sequence[Step]) -> Trace:
    """Rectangles from the prefill side's smallest pool up to the context."""
    x: list[int | None] = []
    y: list[int | None] = []
    for step in found:
        if step.prefill is None or step.context is None or step.prefill >= step.context:
            continue
        x += [local(step.start), local(step.start), local(step.end), local(step.end), None]
        y += [step.prefill, step.context, step.context, step.prefill, None]
    return {
        "type": "scatter",
        "name": "danger zone: accepted, longer than the pool",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"width": 0, "color": "--fail"},
        "fill": "toself",
        "fillcolor": "--fail/0.25",
        "fillpattern": {
            "shape": "/",
            "fgcolor": "--fail/0.7",
            "bgcolor": "--fail/0.1",
            "size": 7,
            "solidity": 0.25,
        },
        "hoverinfo": "skip",
    }


def _node_line(node: str, seen: Sequence[Seen]) -> Trace:
    found = [Step(each.start, each.end, each.pool, None, None) for each in seen]
    name = f"pool of {node}" + (f" ({seen[-1].role})" if seen[-1].role else "")
    return _line(found, said(name, limit=60), [step.pool for step in found], "--pool", 1.5, "solid")


def _changes(changes: Sequence[Mark], found: Sequence[Step]) -> Trace:
    """The changes of capacity on the line of the smallest pool; each leads to the run that saw it."""
    placed = [(mark, pool) for mark in reversed(changes) if (pool := _pool_at(found, mark.at)) is not None]
    return {
        "type": "scatter",
        "name": "capacity change",
        "x": [local(mark.at) for mark, _ in placed],
        "y": [pool for _, pool in placed],
        "mode": "markers",
        "marker": {
            "symbol": "diamond",
            "color": "--mark",
            "size": 12,
            "line": {"color": "--sheet", "width": 1},
        },
        "hoverinfo": "text",
        "hovertext": [
            said(mark.text, instant(mark.at), "Opens its run." if mark.href else "") for mark, _ in placed
        ],
        "customdata": [mark.href for mark, _ in placed],
    }


def _pool_at(found: Sequence[Step], at: datetime) -> int | None:
    return next((step.pool for step in reversed(found) if step.start <= at), None)
