"""Weekly summary: what changed, what ends, what is overdue, who owns it. As a page and as Markdown."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.web.compliance.summary import page as table
from kvaudit.server.web.compliance.summary.markdown import markdown
from kvaudit.server.web.kit.download import download
from kvaudit.server.web.kit.page import SignedIn, page


@page()
def summary(request: SignedIn) -> HttpResponse:
    now = clock.now()
    week = table.week_of(request.GET.get("week", ""), now)
    context = {
        "section": "compliance",
        "now": now,
        "shown": table.summary_of(request.user, week, now),
        "week": week,
    }
    return render(request, "compliance/summary.html", context)


@page(taken=("export.summary", "summary:markdown"))
def as_markdown(request: SignedIn) -> HttpResponseBase:
    now = clock.now()
    week = table.week_of(request.GET.get("week", ""), now)
    text = markdown(table.summary_of(request.user, week, now), settings.BASE_URL)
    return download(text, f"kvaudit-{week.name}.md", "text/markdown; charset=utf-8")
