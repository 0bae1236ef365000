"""Everything that matches, streamed as CSV or JSON."""

from __future__ import annotations

from django.http import HttpResponseBase, StreamingHttpResponse
from django.utils import timezone

from kvaudit.audits.exporting import lines
from kvaudit.web.page import SignedIn, page, refused
from kvaudit.web.spreadsheets import streamed
from kvaudit.web.tables import history as table


@page()
def history_csv(request: SignedIn) -> HttpResponseBase:
    filters = table.Filters.from_query(request.GET)
    if filters.ignored:
        return refused(" ".join(filters.ignored))
    found = lines(table.question(request.user, filters))
    return streamed(table.csv_rows(found), f"{_name(filters)}.csv")


@page()
def history_json(request: SignedIn) -> HttpResponseBase:
    filters = table.Filters.from_query(request.GET)
    if filters.ignored:
        return refused(" ".join(filters.ignored))
    found = lines(table.question(request.user, filters))
    asked = {name: getattr(filters, name) for name in table.TEXTS if getattr(filters, name)}
    response = StreamingHttpResponse(table.json_parts(found, asked), content_type="application/json")
    response["Content-Disposition"] = f'attachment; filename="{_name(filters)}.json"'
    return response


def _name(filters: table.Filters) -> str:
    return f"kvaudit-history-{timezone.now():%Y-%m-%d}-{filters.name}"
