"""The timeline of an incident: what people say, what the auditor recorded, the exposure window as a bar."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.urls import reverse

from kvaudit.server import clock
from kvaudit.server.incidents import system_timeline
from kvaudit.server.incidents.models import Incident, Quarantine, TimelineEvent
from kvaudit.server.web.kit.figure import Figure, Trace, Twin
from kvaudit.server.web.kit.parts.timeline.events import Mark, Span, ends_of, run_address
from kvaudit.server.web.kit.parts.timeline.figure import COLUMNS, build, table_rows

PEOPLE, WINDOW, QUARANTINE, STATE = "people", "exposure window", "quarantine", "incident"
LANES = (PEOPLE, WINDOW, QUARANTINE, STATE)
"""From the top; the auditor's own records below."""


def figure_of(incident: Incident) -> Figure:
    """The place of the drawing, with every mark as a row."""
    rows = table_rows(marks_of(incident, spans_of(incident)))
    return Figure(
        name="incident",
        title=f"Timeline of incident {incident.pk}",
        sentence="What people say happened stands first; the auditor's own records are below it, a lane for each sort. "
        "The bar of the exposure window runs from the last valid pass to the first fail.",
        url=reverse("incident-figure", args=[incident.pk]),
        twin=Twin(COLUMNS, rows),
        empty="" if rows else "Nothing has been recorded or written yet.",
    )


def marks_of(incident: Incident, spans: Sequence[Span]) -> list[Mark]:
    """Newest first: people's events, the system's, and where ``spans`` begin and end."""
    found = [
        Mark(row.at, PEOPLE, row.confidence, f"{row.text} ({row.author})")
        for row in TimelineEvent.objects.current().filter(incident=incident)
    ]
    for event in system_timeline.events_of(incident):
        href = run_address(event.run_id, event.check)
        found.append(Mark(event.at, event.sort, event.verdict or event.sort, event.text, href))
    found += ends_of(spans)
    return sorted(found, key=lambda mark: mark.at, reverse=True)


def spans_of(incident: Incident) -> list[Span]:
    """The exposure window and what was quarantined."""
    found = []
    if incident.window_to is not None:
        start = incident.window_from or incident.window_to - timedelta(minutes=1)
        text = (
            "last valid pass to first fail" if incident.window_from else "no valid pass before the first fail"
        )
        found.append(Span(WINDOW, start, incident.window_to, WINDOW, text))
    for held in Quarantine.objects.filter(incident=incident):
        found.append(Span(QUARANTINE, held.valid_from, held.valid_to, QUARANTINE, held.reason))
    return found


def draw(incident: Incident) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout."""
    end = incident.closed_at or clock.now()
    spans = spans_of(incident)
    marks = marks_of(incident, spans)
    first = min([mark.at for mark in marks] + [span.start for span in spans], default=end)
    return build(marks, spans, [], min(first, end - timedelta(hours=1)), end, LANES)
