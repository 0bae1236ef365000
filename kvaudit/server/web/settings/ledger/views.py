"""Ledger: how the chain stands, verify it now, its entries, and a copy of all of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render

from kvaudit.server import clock
from kvaudit.server.ledger import verify_job
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.download import download
from kvaudit.server.web.kit.page import SignedIn, page, require
from kvaudit.server.web.settings.ledger import page as table

NOT_YOURS = (
    "The ledger chains the acts of all teams together, so it is read by those who hold the role of auditor or more for "
    "every team."
)


@page()
def ledger(request: SignedIn) -> HttpResponse:
    require(request.user, "view_ledger", None, NOT_YOURS)
    now = clock.now()
    filters = table.Filters.from_query(request.GET)
    found, rows = table.entries_of(request.user, filters)
    context = {
        "section": "settings",
        "now": now,
        "state": table.state_of(request.user, now),
        "filters": filters,
        "found": found,
        "rows": rows,
        "kinds": table.kinds(request.user),
        "noted": untrusted.query_text(request.GET.get("hash"), 100),
        "sought": table.search_hash(request.user, request.GET.get("hash", "")),
    }
    return render(request, "settings/ledger.html", context)


@page()
def state(request: SignedIn) -> HttpResponse:
    """The part of the page that asks again every second while a verification is under way."""
    require(request.user, "view_ledger", None, NOT_YOURS)
    now = clock.now()
    context = {"now": now, "state": table.state_of(request.user, now)}
    return render(request, "settings/ledger_state.html", context)


@page("POST")
def verify(request: SignedIn) -> HttpResponse:
    require(request.user, "view_ledger", None, NOT_YOURS)
    verify_job.begin(actor=request.user)
    messages.success(request, "The verification was asked for; its outcome appears here.")
    return redirect("settings-ledger")


@page(taken=("export.ledger", "ledger:entries"))
def export(request: SignedIn) -> HttpResponseBase:
    require(request.user, "view_ledger", None, NOT_YOURS)
    name = f"kvaudit-ledger-{clock.now():%Y-%m-%d}.jsonl"
    return download(table.exported(request.user), name, "application/x-ndjson")
