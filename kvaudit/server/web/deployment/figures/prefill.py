"""Time to first token against prompt length: the points of the latest `prefill` result, its fit, and below
which line an answer came too fast to have been read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.server.audits.models import Result
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.request_logs.production import production_of
from kvaudit.server.web.deployment.figures import production
from kvaudit.server.web.deployment.figures.production import Level
from kvaudit.server.web.kit.figure import Cell, Figure, Trace, Twin, hover_text, layout
from kvaudit.server.web.kit.measure_values import real, rows, tokens

LOOKED_BACK = 3
"""Results looked at for one that holds points: a run in error has none."""

CURVE_POINTS = 80
Z_LIMIT, FLOOR, REACH = 4.0, 0.5, 1.25
"""What `kvaudit.auditor.stats.ttft.judge` calls too fast: below both, and testable up to this multiple."""

COLUMNS = ("Prompt (tokens)", "Read, not cached (tokens)", "To first token (s)", "Foretold (s)", "What")

DOTS = "Each dot is one unique prompt. Below the dotted line an answer began before the prompt can have been read."
NO_DOTS = "The check prefill has measured nothing here yet: drawn is what a request log says of production."
P5 = " Dashed: the fastest twentieth (p5) of production’s requests of those lengths, cached or not."
NOTHING = (
    "The check prefill has measured nothing here yet, and no request log with 59 or more prefill times of a length "
    "was imported."
)


def latest(deployment: Deployment) -> Result | None:
    """The newest result with points."""
    recent = (
        Result.objects.filter(deployment=deployment, check_id="prefill")
        .order_by("-id")
        .only("id", "run_id", "measures", "observed_at", "summary", "verdict", "deployment_id", "check_id")
    )
    return next((result for result in recent[:LOOKED_BACK] if points(_measures(result))), None)


def figure_of(deployment: Deployment) -> Figure:
    result, imported = latest(deployment), production_of(deployment)
    measures = _measures(result)
    found = points(measures)
    p5 = production.levels(measures, imported, deployment, _longest(found))
    note = "" if p5 else str(measures.get("p5_note") or "")
    return Figure(
        name="prefill",
        title=f"Time to first token of {deployment.slug} against prompt length",
        sentence=(DOTS if result else NO_DOTS) + (P5 if p5 else "") + (f" No p5 is drawn: {note}." if note else ""),
        url=reverse("figure", args=[deployment.slug, "prefill"]),
        twin=Twin(
            COLUMNS,
            [*production.table_rows(p5), *_curve_rows(measures, found), *(_row(each, measures) for each in found)],
        ),
        empty="" if result or p5 else NOTHING,
        warning=production.warning(imported, deployment),
    )  # fmt: skip


def draw(deployment: Deployment) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout."""
    result = latest(deployment)
    measures = _measures(result)
    href = f"{reverse('run', args=[result.run_id])}#check-prefill" if result else ""
    p5 = production.levels(measures, production_of(deployment), deployment, _longest(points(measures)))
    return build(measures, href, p5)


def build(
    measures: Mapping[str, Any], href: str, p5: Sequence[Level] = ()
) -> tuple[list[Trace], dict[str, Any]]:
    """Pure; ``measures`` as `kvaudit.auditor.checks.prefill.probe` leaves them."""
    found = points(measures)
    data: list[Trace] = []
    fit, longest = fit_of(measures), _longest(found)
    if fit is not None and longest:
        data += _curves(fit, longest, _fitted_longest(found))
    data += production.traces(p5)
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
        (row.get("name"), tokens(row.get("tokens")), real(row.get("seconds"))): row
        for row in rows(measures.get("judged"))
    }
    found = []
    for row in rows(measures.get("points")):
        length, seconds = tokens(row.get("tokens")), real(row.get("seconds"))
        if length is None or seconds is None or seconds < 0:
            continue
        name = str(row.get("name") or "")
        verdict = judged.get((row.get("name"), length, seconds))
        kind = "fitted" if name == "fit" else "judged"
        if verdict is not None and verdict.get("too_fast"):
            kind = "flagged"
        elif verdict is not None and not verdict.get("testable"):
            kind = "untestable"
        uncached = tokens(row.get("uncached")) or length
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


def _longest(found: Sequence[Mapping[str, Any]]) -> int:
    return max((point["uncached"] for point in found), default=0)


def _fitted_longest(found: Sequence[Mapping[str, Any]]) -> int:
    return max((point["uncached"] for point in found if point["kind"] == "fitted"), default=0)


def least_share(fit: tuple[float, float, float, float]) -> float:
    """Below this share of what is foretold an answer is too fast."""
    return min(math.exp(-Z_LIMIT * fit[3]), FLOOR)


def _lengths(longest: int) -> list[int]:
    """Evenly on the square root, as the lengths were chosen."""
    end = longest * 1.03
    return [round(end * (step / CURVE_POINTS) ** 2) for step in range(CURVE_POINTS + 1)]


def _testable(fit: tuple[float, float, float, float], longest: int, fitted: int) -> list[int]:
    return [n for n in _lengths(longest) if expected(fit, n) > 3 * fit[0] and n <= REACH * fitted]


def _curves(fit: tuple[float, float, float, float], longest: int, fitted: int) -> list[Trace]:
    lengths, testable = _lengths(longest), _testable(fit, longest, fitted)
    least = least_share(fit)
    return [
        _curve("fitted curve", lengths, [expected(fit, n) for n in lengths], "--ink-soft", "solid"),
        _curve("too fast below", testable, [expected(fit, n) * least for n in testable], "--fail", "dot"),
    ]


def _curve_rows(measures: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> list[list[Cell]]:
    """The curves in words: what was foretold at the two ends, and how."""
    fit, longest = fit_of(measures), _longest(found)
    if fit is None or not longest:
        return []
    a, b, c, _ = fit
    lengths, testable = _lengths(longest), _testable(fit, longest, _fitted_longest(found))
    formula = f"{a:.6g} + {b:.6g} n + {c:.6g} n²"
    curves: list[list[Cell]] = [
        ["n", f"{lengths[0]:,} to {lengths[-1]:,}", "", _unbroken(formula), "fitted curve"],
    ]
    if testable:
        span = f"{testable[0]:,} to {testable[-1]:,}"
        curves.append(["n", span, "", _unbroken(f"{least_share(fit):.6g} × ({formula})"), "too fast below"])
    return curves


def _unbroken(formula: str) -> SafeString:
    return format_html('<span class="nowrap">{}</span>', formula)


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
    return hover_text(f"{point['tokens']:,} tokens: {point['seconds']:.3g} s{foretold}", name)


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
