"""What every figure shares: its place on a page, the answer that the script draws, axes and texts.

A page shows ``kit/figure.html`` with a `Figure` and ends its head with
``kit/figure_scripts.html``. The script asks ``figure.url`` for `answer`'s JSON: traces and layout
of plotly as plain dicts. Colours are names of CSS tokens (``"--fail"``, with an opacity ``"--fail/0.2"``)
and become colours in the browser, anew when the scheme changes. A point whose ``customdata`` is an
address of ours is a link: by click, and from the keyboard by Enter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from django.http import HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.server.web.kit import untrusted

Trace = dict[str, Any]
Cell = object  # text of others is spelled out; SafeString (marks, times, links) goes in as it is


@dataclass(frozen=True, slots=True)
class Twin:
    """The table of a figure. ``more`` is the address of all rows where only the newest are here; ``note`` says what
    is left out."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    more: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure's place on a page. ``name`` is an id, unique there; ``sentence`` says in words what is
    drawn; ``empty`` replaces the drawing where there is nothing to draw; ``warning`` is said beside it."""

    name: str
    title: str
    sentence: str
    url: str
    twin: Twin
    empty: str = ""
    open: bool = False  # the table is unfolded from the start (for print)
    warning: SafeString = field(default_factory=SafeString)


def answer(data: Sequence[Trace], layout: Mapping[str, Any]) -> HttpResponse:
    """The JSON that figures.js draws."""
    return HttpResponse(
        orjson.dumps({"data": list(data), "layout": dict(layout)}), content_type="application/json"
    )


def local(moment: datetime) -> int:
    """An instant as plotly's date axes read it: milliseconds of the viewer's wall clock, as if that were
    UTC. Numbers, since plotly takes five times as long to read dates out of text."""
    here = timezone.localtime(moment)
    return round((here.replace(tzinfo=UTC)).timestamp() * 1000)


def instant(moment: datetime) -> str:
    """An instant in a hover text: the viewer's zone and UTC."""
    here, utc = timezone.localtime(moment), moment.astimezone(UTC)
    shown = f"{here:%Y-%m-%d %H:%M:%S} {here.tzname() or ''}"
    return shown if here.utcoffset() == utc.utcoffset() else f"{shown} ({utc:%Y-%m-%d %H:%M} UTC)"


def hover_text(*lines: object, limit: int = 160) -> str:
    """A hover text. plotly reads a little HTML in texts, so that what others wrote is escaped."""
    return "<br>".join(_escaped(untrusted.plain(line, limit)) for line in lines if line not in (None, ""))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def link(href: str) -> SafeString:
    """``/runs/7/#check-pool`` as "run 7", and so for waivers and incidents."""
    kind, _, number = href.partition("#")[0].strip("/").rpartition("/")
    return (
        format_html('<a href="{}">{} {}</a>', href, kind.removesuffix("s"), number) if href else SafeString()
    )


def axis(*, title: str = "", **more: Any) -> dict[str, Any]:
    """An axis in the tokens of the page; foreign words of a ``title`` go through `hover_text`."""
    return {
        "gridcolor": "--rule",
        "linecolor": "--rule-strong",
        "zerolinecolor": "--rule",
        "tickcolor": "--rule-strong",
        "automargin": True,
        "title": {"text": title, "font": {"size": 12}},
        **more,
    }


def layout(*, height: int, x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A layout in the tokens of the page; ``height`` in pixels. Zooming is along x only."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "paper_bgcolor": "--sheet",
        "plot_bgcolor": "--sheet",
        "font": {"color": "--ink", "size": 13},
        "hoverlabel": {
            "bgcolor": "--paper",
            "bordercolor": "--rule-strong",
            "font": {"color": "--ink"},
            "align": "left",
        },
        "hovermode": "closest",
        "xaxis": axis(**x),
        "yaxis": axis(**{"fixedrange": True, **y}),
        **more,
    }
