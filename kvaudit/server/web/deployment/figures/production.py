"""The p5 of production's prefill seconds per length, as lines of the prefill figure and rows of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.request_logs.percentiles import TooFast, shown
from kvaudit.server.inquiries.request_logs.production import Production
from kvaudit.server.web.kit import times
from kvaudit.server.web.kit.figure import Cell, Trace, hover_text
from kvaudit.server.web.kit.measure_values import real, rows, tokens


@dataclass(frozen=True, slots=True)
class Level:
    """The fastest twentieth of the requests of ``low`` (inclusive) to ``high`` tokens took ``seconds``.
    ``n`` requests, None = unknown; ``odd`` where shorter ones took twice as long; ``href`` of the log."""

    low: int
    high: int
    seconds: float
    n: int | None = None
    odd: TooFast | None = None
    href: str = ""


def levels(
    measures: Mapping[str, Any], production: Production | None, deployment: Deployment | None, longest: int
) -> list[Level]:
    """Of the check's own measures where it left a p5 (one number up to ``longest``, or ``{from, to, seconds}`` per
    bucket), else of an imported request log."""
    whole = real(measures.get("p5"))
    if whole is not None:
        found = [Level(0, longest, whole)]
    else:
        found = [
            Level(tokens(row.get("from")) or 0, tokens(row.get("to")) or 0, seconds)
            for row in rows(measures.get("p5"))
            if (seconds := real(row.get("seconds"))) is not None
        ]
    found = [level for level in found if level.high > level.low and level.seconds >= 0]
    if found or production is None or deployment is None:
        return found
    odd = {fast.bucket: fast for fast in production.odd}
    href = address(production, deployment)
    return [
        Level(bucket.low, bucket.high, bucket.p5, bucket.n, odd.get(bucket), href)
        for bucket in production.buckets
        if bucket.p5 is not None
    ]


def address(production: Production, deployment: Deployment) -> str:
    return f"{reverse('request-log', args=[deployment.slug, production.log])}#prefill"


def traces(found: Sequence[Level]) -> list[Trace]:
    """A line over the lengths of each level; those that are too fast apart."""
    usual = [level for level in found if level.odd is None]
    odd = [level for level in found if level.odd is not None]
    drawn = [
        _lines(usual, "p5 of production requests", "--mark", "dash"),
        _lines(odd, "p5 of production: too fast", "--fail", "solid"),
    ]
    return [trace for trace in drawn if trace["x"]]


def _lines(found: Sequence[Level], name: str, colour: str, dash: str) -> Trace:
    return {
        "type": "scatter",
        "name": name,
        "x": [x for level in found for x in (level.low, level.high, None)],
        "y": [y for level in found for y in (level.seconds, level.seconds, None)],
        "mode": "lines",
        "line": {"color": colour, "width": 3, "dash": dash},
        "hoverinfo": "text",
        "hovertext": [text for level in found for text in (_hover(level), _hover(level), "")],
        "customdata": [href for level in found for href in (level.href, level.href, "")],
    }


def _hover(level: Level) -> str:
    return hover_text(
        f"{lengths(level)} tokens: p5 {shown(level.seconds)} s{_of(level)}",
        _against(level),
        "Opens its log." if level.href else "",
    )


def table_rows(found: Sequence[Level]) -> list[list[Cell]]:
    """As rows of `kvaudit.server.web.deployment.figures.prefill.COLUMNS`."""
    # A log does not say what was cached.
    return [[lengths(level), None, shown(level.seconds), "", _words(level)] for level in found]


def _words(level: Level) -> Cell:
    words = f"p5 of production{_of(level)}"
    if level.odd is not None:
        words = f"{words}: too fast, {_against(level)}"
    return format_html('<a href="{}">{}</a>', level.href, words) if level.href else words


def lengths(level: Level) -> str:
    return f"{level.low:,} to {level.high - 1:,}"


def _of(level: Level) -> str:
    return f", {level.n:,} requests" if level.n is not None else ""


def _against(level: Level) -> str:
    if level.odd is None:
        return ""
    shorter = level.odd.shorter
    return f"{shorter.low:,} to {shorter.high - 1:,} tokens took {shown(shorter.p5)} s"


def warning(production: Production | None, deployment: Deployment) -> SafeString:
    """What a request log shows to be too fast to be true; empty where nothing is."""
    if production is None or not production.odd:
        return SafeString()
    said_each = format_html_join(" ", "{}", ((fast.sentence,) for fast in production.odd))
    return format_html(
        '<span class="warn">too fast to be true</span> {} A leak’s signature, or a cached prefix: a warning and no '
        'verdict. <a href="{}">The request log</a>, imported {}.',
        said_each, address(production, deployment), times.stamp(production.imported_at),
    )  # fmt: skip
