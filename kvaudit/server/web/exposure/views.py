"""Exposure: was anybody exposed between these dates? And which requests, by an imported log."""

from __future__ import annotations

from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.inquiries.exposure.report import statement_of
from kvaudit.server.inquiries.models import RequestLog
from kvaudit.server.web.exposure import page as table
from kvaudit.server.web.exposure.log_queries import left_out as not_in_queries
from kvaudit.server.web.exposure.log_queries import queries
from kvaudit.server.web.kit.csv_file import streamed
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, refused

MOST_SPANS = 500
MOST_LOGS = 10


@page()
def exposure(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    now = clock.now()
    window = table.window_of(request.GET, now)
    statement = statement_of(deployment, window.since, window.until)
    spans = table.rows(statement)
    logs = list(RequestLog.objects.of(deployment).select_related("imported_by")[:MOST_LOGS])
    context = {
        "section": "fleet",
        "now": now,
        "deployment": deployment,
        "window": window,
        "statement": statement,
        "sentence": table.sentence(statement, logs),
        "ended_by": table.ended_by(statement),
        "verdict": table.VERDICTS[statement.worst],
        "totals": table.totals(statement),
        "pieces": table.pieces(statement),
        "described": table.described(statement),
        "spans": spans[-MOST_SPANS:],
        "left_out": max(0, len(spans) - MOST_SPANS),
        "queries": queries(statement),
        "not_in_queries": not_in_queries(statement),
        "logs": logs,
        "may_import": can(request.user, "read_evidence", deployment.team_id),
    }
    return render(request, "exposure/exposure.html", context)


@page(taken=("export.exposure", "deployment:{slug}"))
def as_csv(request: SignedIn, slug: str) -> HttpResponseBase:
    deployment = deployment_or_404(request.user, slug)
    window = table.window_of(request.GET, clock.now())
    if window.problem:
        return refused(window.problem)
    statement = statement_of(deployment, window.since, window.until)
    name = f"exposure-{deployment.slug}-{window.since:%Y-%m-%d}-{window.until:%Y-%m-%d}.csv"
    return streamed(table.export(statement), name)
