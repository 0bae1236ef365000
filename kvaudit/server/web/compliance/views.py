"""Compliance: who complies, since when, by waiver or truly? As a page, printed whole, and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone

from kvaudit.server import clock
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.matrix import Matrix, MatrixRow
from kvaudit.server.checklists.models import Waiver
from kvaudit.server.web.compliance import export
from kvaudit.server.web.compliance import figure as trend
from kvaudit.server.web.compliance import page as table
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.csv_file import streamed
from kvaudit.server.web.kit.figure import answer
from kvaudit.server.web.kit.listing import sorted_page
from kvaudit.server.web.kit.page import SignedIn, page, refused, zone_of
from kvaudit.server.web.kit.parts.saved_views import saved_views_of

PRINTED_AT_ONCE = 50


@page()
def compliance(request: SignedIn) -> HttpResponse:
    filters = table.Filters.from_query(request.GET)
    matrix = table.matrix_of(request.user, filters.moment)
    rows = table.matching(matrix.rows, filters)
    shown = sorted_page(rows, lambda row: table.sort_key(row, filters.sort), filters)
    now = clock.now()
    endings = table.ending(request.user, now) if filters.moment is None else []
    overdue = sorted(
        (row for row in matrix.rows if row.overdue_since), key=lambda row: str(row.overdue_since)
    )
    context = _context(matrix, rows, filters) | {
        "rows": shown.rows,
        "said": table.said_of(shown.rows, filters),
        "columns": table.columns_of(matrix, shown.rows),
        "page": shown,
        "endings": endings[: table.MOST_LISTED],
        "more_endings": max(0, len(endings) - table.MOST_LISTED),
        "overdue": overdue[: table.MOST_LISTED],
        "more_overdue": max(0, len(overdue) - table.MOST_LISTED),
        "teams": sorted({row.deployment.team.slug for row in matrix.rows}),
        "items": matrix.items,
        "statuses": [status.value for status in Status],
        "sorts": table.SORTS.items(),
        "figure": trend.figure_of(request.user, filters.team),
        "waiting": Waiver.objects.to_decide_by(request.user, now).count(),
        "saved": saved_views_of(request, "compliance"),
    }
    return render(request, "compliance/compliance.html", context)


@page(taken=("export.compliance", "compliance:print"))
def printed(request: SignedIn) -> HttpResponseBase:
    """Every row that the filters leave, streamed: a fleet is printed whole, not its first page."""
    filters = table.Filters.from_query(request.GET)
    if filters.problem:
        return refused(filters.problem)
    matrix = table.matrix_of(request.user, filters.moment)
    rows = table.matching(matrix.rows, filters)
    context = _context(matrix, rows, filters) | {
        "columns": table.columns_of(matrix, rows),
        "by_word": export.cells_by_word(rows),
        "said": table.said_of(rows, filters),
    }
    frame = render_to_string("compliance/print.html", context, request)
    return StreamingHttpResponse(_printed(frame, rows, context, request.user.zone))


def _printed(frame: str, rows: list[MatrixRow], context: dict[str, Any], zone: str) -> Iterator[str]:
    head, _, foot = frame.partition("<!-- rows -->")
    yield head
    for start in range(0, len(rows), PRINTED_AT_ONCE):
        # The stream is read after the view returned, when its zone is no longer active.
        with timezone.override(zone_of(zone)):
            part = render_to_string(
                "compliance/rows.html", context | {"rows": rows[start : start + PRINTED_AT_ONCE]}
            )
        yield part
    yield foot


@page(taken=("export.compliance", "compliance:csv"))
def as_csv(request: SignedIn) -> HttpResponseBase:
    """A line per cell of every row that the filters leave."""
    filters = table.Filters.from_query(request.GET)
    if filters.problem:
        return refused(filters.problem)
    matrix = table.matrix_of(request.user, filters.moment)
    rows = table.matching(matrix.rows, filters)
    return streamed(export.export_rows(matrix, rows), f"compliance-{matrix.moment:%Y-%m-%d}.csv")


@page()
def figure(request: SignedIn) -> HttpResponse:
    """The trend, for figures.js."""
    team = untrusted.query_text(request.GET.get("team"), 100)
    return answer(*trend.build(trend.weeks_of(request.user, team)))


def _context(matrix: Matrix, rows: list[MatrixRow], filters: table.Filters) -> dict[str, Any]:
    everything = table.roll_up(matrix.rows)
    standing, said = table.sentence(everything)
    return {
        "section": "compliance",
        "now": matrix.moment,  # ages are told from the moment that is shown
        "moment": matrix.moment,
        "past": filters.moment is not None,
        "suffix": f"?as_of={filters.as_of}" if filters.moment is not None else "",
        "matrix": matrix,
        "filters": filters,
        "total": len(matrix.rows),
        "found": len(rows),
        "everything": everything,
        "lines": table.by_team(matrix.rows),
        "worst": standing,
        "sentence": said,
    }
