"""The figures of a deployment as JSON for figures.js, and the timeline's whole table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.deployment.figures import capacity, prefill
from kvaudit.server.web.kit.figure import Trace, answer
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page
from kvaudit.server.web.kit.parts.timeline import events, hours
from kvaudit.server.web.kit.parts.timeline import figure as timeline
from kvaudit.server.web.kit.parts.timeline.decided import decided_about

FIGURES: dict[str, Callable[[Deployment], tuple[list[Trace], dict[str, Any]]]] = {
    "timeline": timeline.draw,
    "capacity": capacity.draw,
    "prefill": prefill.draw,
}
ROWS = 200


@page()
def figure(request: SignedIn, slug: str, name: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    if name not in FIGURES:
        raise Http404
    return answer(*FIGURES[name](found))


@page()
def deployment_events(request: SignedIn, slug: str) -> HttpResponse:
    """Everything that the timeline marks, newest first, by ``?before=`` instant."""
    found = deployment_or_404(request.user, slug)
    before = _instant(request.GET.get("before"))
    now = clock.now()
    gaps = events.gaps_of(found, now, before=before, limit=ROWS)
    spans = [*gaps, *decided_about(found, now)]
    marks, older = _whole_instants(events.marks_of(found, spans=spans, before=before, limit=ROWS))
    context = {
        "section": "fleet",
        "now": now,
        "deployment": found,
        "columns": timeline.COLUMNS,
        "rows": timeline.table_rows(marks),
        "hours": hours.hours_of(found),
        "before": before,
        "older": older,
    }
    return render(request, "deployment/events.html", context)


def _whole_instants(marks: list[events.Mark]) -> tuple[list[events.Mark], str]:
    """A page that ends between instants, and where the next begins: one run changes several checks at
    once, and the next page asks for what is earlier."""
    if len(marks) < ROWS:
        return marks, ""
    whole = [mark for mark in marks if mark.at > marks[-1].at] or marks
    return whole, whole[-1].at.isoformat()


def _instant(text: str | None) -> datetime | None:
    """A moment out of an address; anything unreadable is the newest page."""
    try:
        found = datetime.fromisoformat((text or "").replace(" ", "+"))
    except ValueError:
        return None
    # At either end of the calendar no other zone can say the same moment.
    return found if found.tzinfo and 1970 <= found.year < 9999 else None
