"""Time to first token against prompt length: the points of the latest `prefill` result, its fit, and below
which line an answer came too fast to have been read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse

from kvaudit.audits.models import Result
from kvaudit.fleet.models import Deployment
from kvaudit.inquiries.production import production_p5
from kvaudit.web.figures.frame import Cell, Figure, Trace, Twin, layout, said
from kvaudit.web.measured import real, rows, tokens

LOOKED_BACK = 3
"""Results looked at for one that holds points: a run in error has none."""

CURVE_POINTS = 80
Z_LIMIT, FLOOR, REACH = 4.0, 0.5, 1.25
"""What `kvaudit.stats.ttft.judge` calls too fast: below both, and testable up to this multiple."""

COLUMNS = ("Prompt (tokens)", "Read, not cached", "Seconds to first token", "Foretold", "Judged")


def latest(deployment: Deployment) -> Result | None:
    """The newest result with points."""
    recent = (
        Result.objects.filter(deployment=deployment, check_id="prefill")
        .order_by("-id")
        .only("id", "run_id", "measures", "observed_at", "summary", "verdict", "deployment_id", "check_id")
    )
    return next((result for result in recent[:LOOKED_BACK] if points(_measures(result))), None)


def figure_of(deployment: Deployment) -> Figure:
    result = latest(deployment)
    measures = _with_production(_measures(result), deployment)
    note = "" if measures.get("p5") else str(measures.get("p5_note") or "")
    return Figure(
        name="prefill",
        title=f"Time to first token of {deployment.slug} against prompt length",
        sentence="Each dot is one unique prompt. Below the dotted line an answer began before the prompt can have been "
        "read." + (f" No p5 is drawn: {note}." if note else ""),
        url=reverse("figure", args=[deployment.slug, "prefill"]),
        twin=Twin(COLUMNS, [_row(point, measures) for point in points(measures)]),
        empty="" if result else "The check prefill has measured nothing here yet.",
    )


def draw(deployment: Deployment) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout."""
    result = latest(deployment)
    href = f"{reverse('run', args=[result.run_id])}#check-prefill" if result else ""
    return build(_with_production(_measures(result), deployment), href)


def _with_production(measures: Mapping[str, Any], deployment: Deployment) -> Mapping[str, Any]:
    """With the p5 of production requests, where a request log was imported and the check has none of its own."""
    if measures.get("p5"):
        return measures
    found = production_p5(deployment)
    return {**measures, "p5": found} if found else measures


def build(measures: Mapping[str, Any], href: str) -> tuple[list[Trace], dict[str, Any]]:
    """Pure; ``measures`` as `kvaudit.checks.prefill` leaves them."""
    found = points(measures)
    data: list[Trace] = []
    fit = fit_of(measures)
    longest = max((point["uncached"] for point in found), default=0)
    if fit is not None and longest:
        data += _curves(fit, longest, _fitted_longest(found))
    data += _p5(measures, longest)
    kinds = (
        ("fitted", "prompts of the fit", "circle", "--pool"),
        ("judged", "judged: as slow as foretold", "diamond", "--accent"),
        ("untestable", "not testable", "square", "--unsure-light"),
        ("flagged", "flagged: too fast", "octagon", "--fail"),
    )
    for kind, name, symbol, colour in kinds:
        data.append(_dots([p for p in found if p["kind"] == kind], name, symbol, colour, href, fit))
    shown = layout(
        height=320,
        x={
            "title": "tokens read, not cached",
            "rangemode": "tozero",
            "tickformat": "~s",
        },
        y={"title": "seconds to first token", "rangemode": "tozero"},
    )
    return [trace for trace in data if trace["x"]], shown


def points(measures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``{tokens, uncached, seconds, name, kind}`` by length; kind: fitted, judged, untestable, flagged."""
    judged = {
        (each.get("name"), tokens(each.get("tokens")), real(each.get("seconds"))): each
        for each in rows(measures.get("judged"))
    }
    found = []
    for each in rows(measures.get("points")):
        length, seconds = tokens(each.get("tokens")), real(each.get("seconds"))
        if length is None or seconds is None or seconds < 0:
            continue
        name = str(each.get("name") or "")
        verdict = judged.get((each.get("name"), length, seconds))
        kind = "fitted" if name == "fit" else "judged"
        if verdict is not None and verdict.get("too_fast"):
            kind = "flagged"
        elif verdict is not None and not verdict.get("testable"):
            kind = "untestable"
        uncached = tokens(each.get("uncached")) or length
        found.append({"tokens": length, "uncached": uncached, "seconds": seconds, "name": name, "kind": kind})
    return sorted(found, key=lambda point: (point["uncached"], point["seconds"]))


def fit_of(measures: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """a, b, c and sigma of TTFT(n) = a + b n + c n^2 seconds; None where there is no fit."""
    fit = measures.get("fit")
    if not isinstance(fit, Mapping):
        return None
    numbers = [real(fit.get(name)) for name in ("a", "b", "c", "sigma")]
    a, b, c, sigma = numbers
    return (
        (a, b, c, sigma) if a is not None and b is not None and c is not None and sigma is not None else None
    )


def expected(fit: tuple[float, float, float, float], n: float) -> float:
    a, b, c, _ = fit
    return a + b * n + c * n * n


def _fitted_longest(found: Sequence[Mapping[str, Any]]) -> int:
    return max((point["uncached"] for point in found if point["kind"] == "fitted"), default=0)


def _curves(fit: tuple[float, float, float, float], longest: int, fitted: int) -> list[Trace]:
    end = longest * 1.03
    # Evenly on the square root, as the lengths were chosen.
    lengths = [round(end * (step / CURVE_POINTS) ** 2) for step in range(CURVE_POINTS + 1)]
    least = min(math.exp(-Z_LIMIT * fit[3]), FLOOR)
    testable = [n for n in lengths if expected(fit, n) > 3 * fit[0] and n <= REACH * fitted]
    return [
        _curve("fitted curve", lengths, [expected(fit, n) for n in lengths], "--ink-soft", "solid"),
        _curve("too fast below", testable, [expected(fit, n) * least for n in testable], "--fail", "dot"),
    ]


def _curve(name: str, x: Sequence[int], y: Sequence[float], colour: str, dash: str) -> Trace:
    return {
        "type": "scatter",
        "name": name,
        "x": list(x),
        "y": [round(value, 5) for value in y],
        "mode": "lines",
        "line": {"color": colour, "width": 2, "dash": dash},
        "hoverinfo": "skip",
    }


def _p5(measures: Mapping[str, Any], longest: int) -> list[Trace]:
    """The fastest twentieth of production requests: one number, or ``{from, to, seconds}`` per bucket."""
    whole = real(measures.get("p5"))
    buckets = (
        [(0, longest, whole)]
        if whole is not None
        else [
            (tokens(each.get("from")) or 0, tokens(each.get("to")), real(each.get("seconds")))
            for each in rows(measures.get("p5"))
        ]
    )
    x: list[int | None] = []
    y: list[float | None] = []
    for start, end, seconds in buckets:
        if end is not None and seconds is not None and end > start:
            x += [start, end, None]
            y += [seconds, seconds, None]
    trace: Trace = {
        "type": "scatter",
        "name": "p5 of production requests",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"color": "--mark", "width": 3, "dash": "dash"},
        "hoverinfo": "name",
    }
    return [trace] if x else []


def _dots(
    found: Sequence[Mapping[str, Any]],
    name: str,
    symbol: str,
    colour: str,
    href: str,
    fit: tuple[float, float, float, float] | None,
) -> Trace:
    return {
        "type": "scatter",
        "name": name,
        "x": [point["uncached"] for point in found],
        "y": [point["seconds"] for point in found],
        "mode": "markers",
        "cliponaxis": False,
        "marker": {
            "symbol": symbol,
            "color": colour,
            "size": 9 if name.startswith("prompts") else 12,
            "line": {"color": "--ink-soft" if symbol == "square" else "--sheet", "width": 1},
        },
        "hoverinfo": "text",
        "hovertext": [_hover(point, name, fit) for point in found],
        "customdata": [href for _ in found],
    }


def _hover(point: Mapping[str, Any], name: str, fit: tuple[float, float, float, float] | None) -> str:
    foretold = f", {expected(fit, point['uncached']):.3g} s foretold" if fit else ""
    return said(f"{point['tokens']:,} tokens: {point['seconds']:.3g} s{foretold}", name)


def _row(point: Mapping[str, Any], measures: Mapping[str, Any]) -> list[Cell]:
    fit = fit_of(measures)
    foretold = f"{expected(fit, point['uncached']):.3g}" if fit else None
    words = {"fitted": "part of the fit", "judged": "as slow as foretold", "untestable": "not testable"}
    return [
        point["tokens"],
        point["uncached"],
        f"{point['seconds']:.3g}",
        foretold,
        words.get(point["kind"], "too fast"),
    ]


def _measures(result: Result | None) -> Mapping[str, Any]:
    return result.measures if result is not None and isinstance(result.measures, dict) else {}
