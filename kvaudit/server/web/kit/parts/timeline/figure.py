"""The deployment's timeline: a lane per check with a bar while it said the same and a mark where it changed,
lanes of capacity, versions, schedule, waivers and incidents, and the hours of active audits as bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.models import Plan
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit import badges, times
from kvaudit.server.web.kit.figure import (
    Cell,
    Figure,
    Trace,
    Twin,
    axis,
    hover_text,
    instant,
    layout,
    link,
    local,
)
from kvaudit.server.web.kit.parts import checks
from kvaudit.server.web.kit.parts.timeline import events, hours
from kvaudit.server.web.kit.parts.timeline.decided import decided_about
from kvaudit.server.web.kit.parts.timeline.events import Mark, Span

ROWS = 30
"""Rows of the table on the page itself."""

SHORTEST = timedelta(minutes=10)
LANE_PIXELS = 30
DENSE = 800
LINES = 500
"""Bars of a kind that are drawn as lines; more become one filled path."""
OTHER_LANES = (
    events.CAPACITY,
    events.VERSION,
    events.SCHEDULE,
    events.PAUSED,
    events.WAIVERS,
    events.INCIDENTS,
)

# kind -> (symbol, colour, line colour); shapes differ without colour, as the marks of every page do
SYMBOLS: Mapping[str, tuple[str, str, str]] = {
    "pass": ("circle", "--pass", "--sheet"),
    "fail": ("octagon", "--fail", "--sheet"),
    "inconclusive": ("square", "--unsure-light", "--unsure"),
    "error": ("triangle-up", "--error", "--sheet"),
    events.EXPIRED: ("circle", "--sheet", "--quiet"),
    events.CAPACITY: ("diamond", "--mark", "--sheet"),
    events.VERSION: ("diamond-tall", "--accent", "--sheet"),
    events.SMALL: ("diamond", "--sheet", "--mark"),
    events.OVERDUE: ("hourglass", "--unsure", "--sheet"),
    events.PAUSED: ("cross", "--mark", "--sheet"),
    events.WAIVERS: ("square", "--accent", "--sheet"),
    events.INCIDENTS: ("star", "--fail", "--sheet"),
    events.ENDED: ("circle", "--sheet", "--ink"),
}
OTHER_SYMBOL = ("cross", "--quiet", "--sheet")
# kind -> (colour, width, dash)
BARS: Mapping[str, tuple[str, float, str]] = {
    "pass": ("--pass/0.6", 7, "solid"),
    "fail": ("--fail", 9, "solid"),
    "inconclusive": ("--unsure-light", 7, "solid"),
    "error": ("--error/0.6", 7, "solid"),
    events.EXPIRED: ("--quiet", 2, "dot"),
    events.OVERDUE: ("--unsure", 3, "dash"),
    events.PAUSED: ("--mark", 3, "dash"),
    events.WAIVERS: ("--accent", 6, "solid"),
    events.INCIDENTS: ("--fail/0.7", 9, "solid"),
}
OTHER_BAR = ("--quiet", 4.0, "solid")


def figure_of(deployment: Deployment, plans: Sequence[Plan] | None = None) -> Figure:
    """The timeline's place on the page, with the newest rows of its table; ``plans`` as for `hours.hours_of`."""
    now = clock.now()
    spans = [*events.gaps_of(deployment, now, limit=ROWS), *decided_about(deployment, now)]
    rows = table_rows(events.marks_of(deployment, spans=spans, limit=ROWS))
    return Figure(
        name="timeline",
        title=f"Timeline of {deployment.slug}",
        sentence="A lane for each check: a bar while it says the same, a mark where that changes, dots where its "
        "evidence has expired and nothing is known. Capacity and version changes stand below; the hours in which "
        "audits may run are bands.",
        url=reverse("figure", args=[deployment.slug, "timeline"]),
        twin=Twin(
            COLUMNS,
            [*rows, *hours.table_rows(hours.hours_of(deployment, plans))],
            reverse("deployment-events", args=[deployment.slug]),
        ),
        empty="" if rows else "Nothing has changed yet: the first audit makes the first mark.",
    )


COLUMNS = ("When", "Lane", "What", "Why", "See")


def table_rows(found: Sequence[Mark]) -> list[list[Cell]]:
    """The marks as rows of the table."""
    return [[times.stamp(mark.at), mark.lane, _what(mark), mark.text, link(mark.href)] for mark in found]


def _what(mark: Mark) -> Cell:
    return badges.mark(mark.kind) if mark.kind in set(Verdict) else mark.kind


def draw(deployment: Deployment, now: datetime | None = None) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout."""
    now = now or clock.now()
    decided = decided_about(deployment, now)
    spans = [*events.spans_of(deployment, now), *decided]
    marks = events.marks_of(deployment, spans=spans, since=now - events.LONGEST_BACK)
    start = extent(marks, spans, now)
    return build(marks, spans, hours.bands(hours.hours_of(deployment), start, now), start, now)


def extent(marks: Sequence[Mark], spans: Sequence[Span], now: datetime) -> datetime:
    """From when on the drawing begins: the first thing there is, ten minutes ago at the latest."""
    first = min([mark.at for mark in marks] + [span.start for span in spans], default=now)
    return max(min(first, now - SHORTEST), now - events.LONGEST_BACK)


def build(
    marks: Sequence[Mark],
    spans: Sequence[Span],
    bands: Sequence[Trace],
    start: datetime,
    now: datetime,
    first: Sequence[str] = (),
) -> tuple[list[Trace], dict[str, Any]]:
    """Pure. Bands lie on the hidden first y axis, under the lanes of the second; lanes named ``first`` stand on top."""
    lanes = lanes_of([*(mark.lane for mark in marks), *(span.lane for span in spans)], first)
    heights = {lane: len(lanes) - 1 - number for number, lane in enumerate(lanes)}
    data = list(bands)
    kinds = _in_order([*(span.kind for span in spans), *(mark.kind for mark in marks)])
    data += [
        _bars(kind, [span for span in spans if span.kind == kind], heights, start, now) for kind in kinds
    ]
    size = 12 if len(marks) <= DENSE else 8
    data += [_symbols(kind, [mark for mark in marks if mark.kind == kind], heights, size) for kind in kinds]
    margin = (now - start) * 0.015
    shown = layout(
        height=LANE_PIXELS * max(len(lanes), 2) + 70,
        x={
            "type": "date",
            "range": [local(start - margin), local(now + margin)],
            "tickangle": 0,
            "title": f"time in {hover_text(timezone.get_current_timezone_name(), limit=60)}",
        },
        y={"visible": False, "range": [0, 1]},
    )
    shown["yaxis2"] = axis(
        overlaying="y",
        fixedrange=True,
        side="left",
        tickvals=list(heights.values()),
        ticktext=[hover_text(lane, limit=30) for lane in lanes],
        range=[-0.7, len(lanes) - 0.3],
        zeroline=False,
        automargin=False,
    )
    # Margins by the longest name: measuring every label costs as much as drawing a thousand marks.
    shown["xaxis"]["automargin"] = shown["yaxis"]["automargin"] = False
    shown["margin"] = {
        "l": 16 + round(7.5 * max((min(len(lane), 30) for lane in lanes), default=0)),
        "r": 12,
        "t": 8,
        "b": 56,
    }
    return [trace for trace in data if trace["x"]], shown


def lanes_of(found: Sequence[str], first: Sequence[str] = ()) -> list[str]:
    """Those named ``first``, checks in their usual order, then the other lanes."""
    on_top = [lane for lane in first if lane in found]
    there = set(found) - set(on_top)
    return [
        *on_top,
        *checks.in_order(sorted(there - set(OTHER_LANES))),
        *(lane for lane in OTHER_LANES if lane in there),
    ]


def _in_order(kinds: Sequence[str]) -> list[str]:
    """Worst last: it is drawn over the others where they are dense."""
    known = {kind: position for position, kind in enumerate((*BARS, *SYMBOLS))}
    worst = {"inconclusive": 1, "error": 2, "fail": 3}
    return sorted(set(kinds), key=lambda kind: (worst.get(kind, 0), known.get(kind, len(known)), kind))


def _bars(
    kind: str, spans: Sequence[Span], heights: Mapping[str, int], start: datetime, now: datetime
) -> Trace:
    """All spans of a kind. Few are lines; many are one filled path, since plotly draws a path of its own for
    every piece of a broken line. Bars do not speak under the pointer: they begin at a mark, and would take the
    pointer and the click from it."""
    colour, width, dash = BARS.get(kind, OTHER_BAR)
    shown = [span for span in spans if (span.end or now) >= start]
    common: Trace = {
        "name": kind,
        "legendgroup": kind,
        "showlegend": kind not in SYMBOLS or kind == events.EXPIRED,
        "yaxis": "y2",
    }
    ends = [(local(max(span.start, start)), local(span.end or now), heights[span.lane]) for span in shown]
    if len(shown) > LINES:
        return {**common, **_filled(ends, width / LANE_PIXELS / 2, colour)}
    return {
        **common,
        "type": "scatter",
        "x": [x for begin, end, _ in ends for x in (begin, end, None)],
        "y": [y for _, _, height in ends for y in (height, height, None)],
        "mode": "lines",
        "line": {"color": colour, "width": width, "dash": dash},
        "hoverinfo": "skip",
    }


def _filled(ends: Sequence[tuple[int, int, float]], half: float, colour: str) -> Trace:
    """Rectangles from one x to another around a height, as a single path."""
    return {
        "type": "scatter",
        "x": [x for begin, end, _ in ends for x in (begin, begin, end, end, None)],
        "y": [y for _, _, at in ends for y in (at - half, at + half, at + half, at - half, None)],
        "mode": "none",
        "fill": "toself",
        "fillcolor": colour,
        "hoverinfo": "skip",
    }


def _symbols(kind: str, marks: Sequence[Mark], heights: Mapping[str, int], size: int) -> Trace:
    symbol, colour, edge = SYMBOLS.get(kind, OTHER_SYMBOL)
    return {
        "type": "scatter",
        "name": hover_text(kind, limit=40),
        "legendgroup": kind,
        "x": [local(mark.at) for mark in marks],
        "y": [heights[mark.lane] for mark in marks],
        "yaxis": "y2",
        "mode": "markers",
        "marker": {
            "symbol": symbol,
            "color": colour,
            "size": size,
            "line": {"color": edge, "width": 1.5 if edge != "--sheet" else 1},
        },
        "hoverinfo": "text",
        "hovertext": [_hover(mark) for mark in marks],
        "customdata": [mark.href for mark in marks],
    }


def _hover(mark: Mark) -> str:
    was = f" (was {mark.before})" if mark.before else ""
    more = "Opens what it comes from." if mark.href else ""
    return hover_text(f"{mark.lane}: {mark.kind}{was}", instant(mark.at), mark.text, more, limit=140)
