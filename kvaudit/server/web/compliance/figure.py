"""The trend of compliance: a bar per week, truly passed, by attestation and by waiver drawn apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.urls import reverse

from kvaudit.server import clock
from kvaudit.server.accounts.models import User
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.models import DailyCount
from kvaudit.server.web.kit.figure import Cell, Figure, Trace, Twin, hover_text, layout

WEEKS = 26
NAME = "compliance-trend"
Week = tuple[date, Mapping[Status, int]]

# From the bottom of a bar upwards. Colours repeat what words and hatching say.
DRAWN = (
    (Status.PASS, "passed by checks", "--pass", ""),
    (Status.ATTESTED, "by attestation", "--accent", "."),
    (Status.WAIVED, "by waiver", "--mark", "/"),
    (Status.INCONCLUSIVE, "inconclusive", "--unsure", "x"),
    (Status.ERROR, "error", "--error", "-"),
    (Status.FAIL, "fail", "--fail", ""),
)


def weeks_of(user: User, team: str = "", now: datetime | None = None) -> list[Week]:
    """The last day of each of the last 26 weeks with its counts, oldest first: yesterday and every
    seventh day before. One query over the daily counts."""
    yesterday = (now or clock.now()).astimezone(UTC).date() - timedelta(days=1)
    days = [yesterday - timedelta(weeks=back) for back in range(WEEKS)]
    rows = DailyCount.objects.visible_to(user).filter(day__in=days)
    if team:
        rows = rows.filter(team__slug=team)
    found: dict[date, dict[Status, int]] = {}
    for day, status, count in rows.order_by().values_list("day", "status").annotate(Sum("count")):
        found.setdefault(day, {})[Status(status)] = count
    return sorted(found.items())


def figure_of(user: User, team: str = "") -> Figure:
    weeks = weeks_of(user, team)
    address = reverse("compliance-figure")
    return Figure(
        name=NAME,
        title="Compliance, week by week",
        sentence="How all applicable cells stood at the end of each week (UTC). What rests on an attestation or a "
        "waiver is drawn apart from what passed.",
        url=f"{address}?team={team}" if team else address,
        twin=Twin(COLUMNS, [_row(*week) for week in reversed(weeks)]),
        empty="" if weeks else "No day has been counted yet: the first appears when a UTC day is over.",
    )


COLUMNS = (
    "End of",
    "Passed by checks",
    "By attestation",
    "By waiver",
    "Inconclusive",
    "Error",
    "Fail",
    "Comply",
)


def _row(day: date, counts: Mapping[Status, int]) -> list[Cell]:
    return [day.isoformat(), *(counts.get(status, 0) for status, *_ in DRAWN), share(counts)]


def share(counts: Mapping[Status, int]) -> str:
    """Cells that comply in any way, of all to which a rule applies."""
    total = sum(counts.get(status, 0) for status, *_ in DRAWN)
    complying = sum(counts.get(status, 0) for status in (Status.PASS, Status.ATTESTED, Status.WAIVED))
    return f"{100 * complying / total:.0f} %" if total else "nothing applies"


def build(weeks: Sequence[Week]) -> tuple[list[Trace], dict[str, Any]]:
    """Pure: one trace per status, stacked; shares in per cent, counts in the hover text."""
    totals = [sum(counts.get(status, 0) for status, *_ in DRAWN) for _, counts in weeks]
    data: list[Trace] = []
    for status, name, colour, hatch in DRAWN:
        counts = [week.get(status, 0) for _, week in weeks]
        if not any(counts):
            continue
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": [day.isoformat() for day, _ in weeks],
                "y": [
                    round(100 * n / total, 2) if total else 0 for n, total in zip(counts, totals, strict=True)
                ],
                "marker": {
                    "color": colour,
                    "line": {"color": "--sheet", "width": 1},
                    "pattern": {
                        "shape": hatch,
                        "fgcolor": "--sheet",
                        "bgcolor": colour,
                        "size": 6,
                        "solidity": 0.25,
                    },
                },
                "hoverinfo": "text",
                "hovertext": [
                    hover_text(f"{name}: {n:,} of {total:,} cells", f"week to {day.isoformat()}") if n else ""
                    for (day, _), n, total in zip(weeks, counts, totals, strict=True)
                ],
                "textposition": "none",
            }
        )
    shown = layout(
        height=280,
        x={"type": "date", "tickangle": 0, "title": "end of the week (UTC)"},
        y={"title": "share of cells", "range": [0, 100], "ticksuffix": " %"},
        barmode="stack",
        bargap=0.25,
    )
    return data, shown
