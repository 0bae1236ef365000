"""Audit history: every result, filtered, in slices; and the views that somebody keeps of it."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from kvaudit.audits.history_query import page_of
from kvaudit.inquiries.models import SavedView
from kvaudit.inquiries.views_kept import ViewProblem, remove_view, save_view
from kvaudit.web import foreign
from kvaudit.web.page import SignedIn, page
from kvaudit.web.tables import history as table

PAGE = "history"


@page()
def history(request: SignedIn) -> HttpResponse:
    filters = table.Filters.from_query(request.GET)
    found = page_of(table.question(request.user, filters), below=filters.below)
    context = {
        "section": "history",
        "now": timezone.now(),
        "filters": filters,
        "found": found,
        "rows": [(row, found.builds.at(row.deployment_id, row.observed_at)) for row in found.rows],
        "views": list(SavedView.objects.of(request.user, PAGE)),
        "query": request.GET.urlencode(),
        **table.choices(),
    }
    return render(request, "history/history.html", context)


@page("POST")
def save(request: SignedIn) -> HttpResponse:
    query = request.POST.get("query", "")
    try:
        view = save_view(user=request.user, page=PAGE, name=request.POST.get("name", ""), query=query)
    except ViewProblem as problem:
        messages.error(request, str(problem))
        return redirect(f"{reverse(PAGE)}?{query}" if len(query) <= 2_000 else reverse(PAGE))
    messages.success(
        request, f"Saved as {foreign.plain(view.name, 80)}. Whoever has its link sees what they may see."
    )
    return redirect("saved-view", view.key)


@page()
def saved(request: SignedIn, key: uuid.UUID) -> HttpResponse:
    """The shareable address of a view: it leads to the page with its filters."""
    kept = get_object_or_404(SavedView, key=key)
    if kept.page != PAGE:
        raise Http404
    return redirect(f"{reverse(PAGE)}?{kept.query}" if kept.query else reverse(PAGE))


@page("POST")
def remove(request: SignedIn, key: uuid.UUID) -> HttpResponse:
    kept = get_object_or_404(SavedView, key=key, user=request.user)
    remove_view(user=request.user, view=kept)
    messages.success(request, "The view was removed.")
    return redirect(PAGE)
