"""Hours in which audits may run, as they are declared now: bands behind the lanes of the timeline, rows of its
table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from kvaudit.server.audits.models import Plan
from kvaudit.server.audits.schedule.windows import problem, spans
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.figure import Cell, Trace, hover_text, local
from kvaudit.server.web.kit.parts import windows

LANE = "hours of audits"
MOST = 12
"""Lists of windows that are drawn; a deployment's plans seldom have two."""

HATCHES = ("/", "\\", "x", "-", "|", "+")


@dataclass(frozen=True, slots=True)
class Hours:
    """Windows, and whose they are: the deployment's (no plans), or those of plans that share them."""

    windows: Sequence[Mapping[str, Any]]
    plans: Sequence[Plan] = ()

    @property
    def name(self) -> str:
        if not self.plans:
            return "hours of active audits"
        names = ", ".join(plan.name for plan in self.plans)
        return f"hours of plan{'' if len(self.plans) == 1 else 's'} {names}"

    @property
    def lines(self) -> Sequence[str]:
        return [windows.line(window) for window in self.windows]


def hours_of(deployment: Deployment, plans: Sequence[Plan] | None = None) -> list[Hours]:
    """The deployment's own, then those of its plans that are switched on; none of what may always run. One query
    where the open ``plans`` of the deployment are not given."""
    found = [Hours(deployment.windows)] if _any(deployment.windows) else []
    if plans is None:
        plans = list(Plan.objects.for_deployment(deployment).order_by("name", "pk"))
    by_lines: dict[tuple[str, ...], list[Plan]] = {}
    for plan in plans:
        if plan.enabled and _any(plan.windows):
            by_lines.setdefault(tuple(windows.line(window) for window in plan.windows), []).append(plan)
    found += [Hours(plans[0].windows, plans) for plans in by_lines.values()]
    return found[:MOST]


def _any(given: object) -> bool:
    return bool(given) and not problem(given)


def bands(found: Sequence[Hours], start: datetime, end: datetime) -> list[Trace]:
    """A filled path for each, over the whole height of the first y axis; hatched where they are of plans."""
    drawn = []
    for number, hours in enumerate(found):
        open_at = spans(hours.windows, start, end)
        fill: Trace = {"fillcolor": "--track/0.8"}
        if hours.plans:
            fill = {
                "fillcolor": "--accent/0.12",
                "fillpattern": {
                    "shape": HATCHES[number % len(HATCHES)],
                    "fgcolor": "--accent/0.5",
                    "bgcolor": "--accent/0.06",
                    "size": 8,
                    "solidity": 0.12,
                },
            }
        drawn.append(
            {
                "type": "scatter",
                "name": hover_text(f"{hours.name}, as declared now", limit=100),
                "x": [
                    x
                    for begin, stop in open_at
                    for x in (local(begin), local(begin), local(stop), local(stop), None)
                ],
                "y": [y for _ in open_at for y in (0, 1, 1, 0, None)],
                "mode": "none",
                "fill": "toself",
                "hoverinfo": "skip",
                **fill,
            }
        )
    return drawn


def table_rows(found: Sequence[Hours]) -> list[list[Cell]]:
    """As rows of `kvaudit.server.web.kit.parts.timeline.figure.COLUMNS`: when by the rule, not by every date."""
    return [
        ["; ".join(hours.lines), LANE, "band, as declared now", hours.name, _links(hours.plans)]
        for hours in found
    ]


def _links(plans: Sequence[Plan]) -> SafeString:
    return format_html_join(
        ", ",
        '<a href="{}">plan {}</a>',
        ((reverse("plan", args=[plan.series]), untrusted.inline(plan.name, 80)) for plan in plans),
    )
