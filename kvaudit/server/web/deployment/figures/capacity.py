"""Pool and context over time: the smallest pool as steps, the context, what the pool must hold, and the
danger zone between pool and context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from kvaudit.auditor.checks.pool.numbers import required_tokens
from kvaudit.server import clock
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.deployment.figures.pools import ReadPool, Step, lasting, snapshots_of, steps
from kvaudit.server.web.kit import times
from kvaudit.server.web.kit.figure import Cell, Figure, Trace, Twin, hover_text, instant, layout, link, local
from kvaudit.server.web.kit.parts.timeline import events
from kvaudit.server.web.kit.parts.timeline.events import Mark

ROWS = 200
MOST_CHANGES = 2_000
MOST_LINES = 8
"""Nodes that get a line of their own; beyond that only the smallest is drawn."""

COLUMNS = (
    "From",
    "Until",
    "What",
    "Pool (tokens)",
    "Context (tokens)",
    "Must hold (tokens)",
    "Danger zone (tokens)",
    "See",
)
NOTHING = SafeString()
"""A cell for which there is no question."""


def figure_of(deployment: Deployment) -> Figure:
    now = clock.now()
    seen = snapshots_of(deployment)
    rows = table_rows(seen, _changes_of(deployment), deployment.headroom, deployment.context, now)
    return Figure(
        name="capacity",
        title=f"Pool and context of {deployment.slug} over time",
        sentence="The smallest KV pool against the context. Below the dashed line it lacks its headroom; in the shaded "
        "zone a prompt is accepted that the pool cannot hold.",
        url=reverse("figure", args=[deployment.slug, "capacity"]),
        twin=Twin(
            COLUMNS,
            rows[:ROWS],
            note=f"The newest {ROWS} of {len(rows):,} rows; the drawing shows all."
            if len(rows) > ROWS
            else "",
        ),
        empty="" if seen else "No node has been read yet, so pool and context are unknown.",
    )


def _changes_of(deployment: Deployment) -> list[Mark]:
    return events.capacity_changes(deployment, MOST_CHANGES)


def table_rows(
    seen: Sequence[ReadPool], changes: Sequence[Mark], headroom: float, declared: int | None, now: datetime
) -> list[list[Cell]]:
    """All nodes together between any two changes, each node by itself, and the changes; newest first."""
    lasted = lasting(seen, now)
    found = steps(lasted, declared)
    rows = [(step.start, _step_row(step, headroom)) for step in found]
    rows += [(each.start, _node_row(each)) for each in lasted]
    rows += [(mark.at, _change_row(mark, _pool_at(found, mark.at))) for mark in changes]
    return [row for _, row in sorted(rows, key=lambda row: row[0], reverse=True)]


def _step_row(step: Step, headroom: float) -> list[Cell]:
    zone: Cell = None
    if step.prefill is not None and step.context is not None:
        zone = f"{step.prefill:,} to {step.context:,}" if step.prefill < step.context else "none"
    must = must_hold(step, headroom)
    return [
        _stamp(step.start),
        _stamp(step.end),
        "all nodes: the smallest",
        step.pool,
        step.context,
        must,
        zone,
        NOTHING,
    ]


def _node_row(seen: ReadPool) -> list[Cell]:
    what = ", ".join(part for part in (seen.node, seen.role, seen.version) if part)
    return [_stamp(seen.start), _stamp(seen.end), what, seen.pool, seen.context, NOTHING, NOTHING, NOTHING]


def _change_row(mark: Mark, pool: int | None) -> list[Cell]:
    what = f"{mark.kind}: {mark.text}"
    return [_stamp(mark.at), NOTHING, what, pool, NOTHING, NOTHING, NOTHING, link(mark.href)]


def _stamp(moment: datetime) -> SafeString:
    return times.stamp(moment)


def draw(deployment: Deployment, now: datetime | None = None) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout."""
    changes = _changes_of(deployment)
    return build(
        snapshots_of(deployment), changes, deployment.headroom, deployment.context, now or clock.now()
    )


def must_hold(step: Step, headroom: float) -> int | None:
    return None if step.context is None else required_tokens(headroom, step.context)


def build(
    seen: Sequence[ReadPool],
    changes: Sequence[Mark],
    headroom: float,
    declared_context: int | None,
    now: datetime,
) -> tuple[list[Trace], dict[str, Any]]:
    """Pure."""
    lasted = lasting(seen, now)
    found = steps(lasted, declared_context)
    data = [_zone(found)]
    nodes = list(dict.fromkeys(snapshot.node for snapshot in seen))
    if 1 < len(nodes) <= MOST_LINES:
        data += [_node_line(node, [each for each in lasted if each.node == node]) for node in nodes]
    data += [
        _line(found, "smallest pool", [step.pool for step in found], "--accent", 3, "solid"),
        _line(found, "context", [step.context for step in found], "--ink", 2, "solid"),
        _line(
            found,
            f"context × {headroom:g}, what the pool must hold",
            [must_hold(step, headroom) for step in found],
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
            "title": f"time in {hover_text(timezone.get_current_timezone_name(), limit=60)}",
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
        text = hover_text(f"{name}: {value:,} tokens", f"{instant(step.start)} to {instant(step.end)}")
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
    texts: list[str] = []
    for step in found:
        if step.prefill is None or step.context is None or step.prefill >= step.context:
            continue
        x += [local(step.start), local(step.start), local(step.end), local(step.end), None]
        y += [step.prefill, step.context, step.context, step.prefill, None]
        text = hover_text(
            f"danger zone: {step.prefill:,} to {step.context:,} tokens",
            f"{instant(step.start)} to {instant(step.end)}",
        )
        texts += [text, text, text, text, ""]
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
        "hoverinfo": "text",
        "hoveron": "points",
        "hovertext": texts,
    }


def _node_line(node: str, seen: Sequence[ReadPool]) -> Trace:
    found = [Step(snapshot.start, snapshot.end, snapshot.pool, None, None) for snapshot in seen]
    name = f"pool of {node}" + (f" ({seen[-1].role})" if seen[-1].role else "")
    return _line(found, hover_text(name, limit=60), [step.pool for step in found], "--pool", 1.5, "solid")


def _changes(changes: Sequence[Mark], found: Sequence[Step]) -> Trace:
    """The changes of capacity on the line of the smallest pool, where that was unknown at the last known one; each
    leads to the run that saw it."""
    known = [step for step in found if step.pool is not None]
    placed = [(mark, _pool_at(known, mark.at) or 0, _pool_at(found, mark.at)) for mark in reversed(changes)]
    return {
        "type": "scatter",
        "name": "capacity change",
        "x": [local(mark.at) for mark, *_ in placed],
        "y": [height for _, height, _ in placed],
        "mode": "markers",
        "marker": {
            "symbol": "diamond",
            "color": "--mark",
            "size": 12,
            "line": {"color": "--sheet", "width": 1},
        },
        "hoverinfo": "text",
        "hovertext": [
            hover_text(
                mark.text,
                instant(mark.at),
                "The smallest pool was unknown." if pool is None else "",
                "Opens its run." if mark.href else "",
            )
            for mark, _, pool in placed
        ],
        "customdata": [mark.href for mark, *_ in placed],
    }


def _pool_at(found: Sequence[Step], at: datetime) -> int | None:
    return next((step.pool for step in reversed(found) if step.start <= at), None)
