"""Everything that matches, streamed as CSV or JSON: at once, or watched from a page of its own."""

from __future__ import annotations

from collections.abc import Iterator

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from kvaudit.server import clock
from kvaudit.server.audits.evidence.export import ExportedResult, exported_results
from kvaudit.server.inquiries.exports import watched
from kvaudit.server.inquiries.models import Export, ExportKind
from kvaudit.server.inquiries.saved_views.services import ViewProblem
from kvaudit.server.web.history import page as table
from kvaudit.server.web.kit import csv_file
from kvaudit.server.web.kit.download import download
from kvaudit.server.web.kit.page import SignedIn, page, refused
from kvaudit.server.web.kit.progress import Live

TYPES = {ExportKind.CSV: "text/csv; charset=utf-8", ExportKind.JSON: "application/json"}
PAUSED_AFTER = 60
"""Seconds without a part after which a download is paused or gone."""


@page(taken=("export.history", "history:csv"))
def history_csv(request: SignedIn) -> HttpResponseBase:
    filters = table.Filters.from_query(request.GET)
    if filters.ignored:
        return refused(filters.problem)
    found = exported_results(table.question(request.user, filters))
    return _download(_parts(ExportKind.CSV, found, filters), ExportKind.CSV, filters)


@page(taken=("export.history", "history:json"))
def history_json(request: SignedIn) -> HttpResponseBase:
    filters = table.Filters.from_query(request.GET)
    if filters.ignored:
        return refused(filters.problem)
    found = exported_results(table.question(request.user, filters))
    return _download(_parts(ExportKind.JSON, found, filters), ExportKind.JSON, filters)


@page("POST")
def begin(request: SignedIn) -> HttpResponse:
    kind, query = request.POST.get("kind", ""), request.POST.get("query", "")
    if kind not in ExportKind.values:
        raise Http404
    if problem := table.Filters.from_query(QueryDict(query)).problem:
        messages.error(request, f"{problem} Nothing was exported.")
        return redirect("history")
    try:
        export = watched.begin(user=request.user, kind=kind, query=query)
    except ViewProblem as problem:
        messages.error(request, str(problem))
        return redirect("history")
    return redirect("history-export", export.pk)


@page()
def export(request: SignedIn, pk: int) -> HttpResponse:
    """How an export goes, and what a whole file of it comes to."""
    return render(request, "history/export.html", _told(_mine_or_404(request, pk)))


@page()
def progress(request: SignedIn, pk: int) -> HttpResponse:
    """The part of the page that asks again every second."""
    return render(request, "history/export_progress.html", _told(_mine_or_404(request, pk)))


@page("POST")
def cancel(request: SignedIn, pk: int) -> HttpResponse:
    if not watched.cancel(_mine_or_404(request, pk)):
        messages.warning(request, "The export had already ended.")
    return redirect("history-export", pk)


@page(taken=("export.history", "export:{pk}"))
def file(request: SignedIn, pk: int) -> HttpResponseBase:
    """The export itself, once: what the filters of its query match now, of what the reader may see now."""
    mine = _mine_or_404(request, pk)
    filters = table.Filters.from_query(QueryDict(mine.query))
    if filters.ignored:
        return refused(filters.problem)
    if not watched.claim(mine):
        messages.warning(request, "This export has been sent already: begin another one.")
        return redirect("history-export", pk)
    meter = watched.Meter(mine)
    found = meter.rows(exported_results(table.question(request.user, filters)))
    kind = ExportKind(mine.kind)
    return _download(meter.parts(_parts(kind, found, filters)), kind, filters)


def _mine_or_404(request: SignedIn, pk: int) -> Export:
    return get_object_or_404(Export, pk=pk, user=request.user)


def _told(mine: Export) -> dict[str, object]:
    now = clock.now()
    silent = mine.seen_at is not None and (now - mine.seen_at).total_seconds() > PAUSED_AFTER
    return {"section": "history", "now": now, "export": mine, "silent": silent, "live": _live(mine)}


def _live(mine: Export) -> Live:
    return Live(
        page=reverse("history-export", args=[mine.pk]),
        poll=reverse("history-export-progress", args=[mine.pk]) if mine.live else "",
        cancel="" if mine.cancel_requested_at else reverse("history-export-cancel", args=[mine.pk]),
        what="export",
    )


def _parts(
    kind: ExportKind, found: Iterator[ExportedResult], filters: table.Filters
) -> Iterator[bytes | str]:
    if kind == ExportKind.CSV:
        return csv_file.lines(table.csv_rows(found))
    return table.json_parts(found, filters.narrowing)


def _download(
    parts: Iterator[bytes | str] | Iterator[bytes], kind: ExportKind, filters: table.Filters
) -> HttpResponseBase:
    return download(parts, f"kvaudit-history-{clock.now():%Y-%m-%d}-{filters.name}.{kind}", TYPES[kind])
