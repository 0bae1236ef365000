"""Views that somebody keeps of a page's filters: fleet, compliance, history."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from kvaudit.server.accounts.models import Team
from kvaudit.server.inquiries.models import SavedView
from kvaudit.server.inquiries.saved_views.services import (
    LONGEST_QUERY,
    PAGES,
    ViewProblem,
    remove_view,
    save_view,
)
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.forms import alone, sent
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.saved_views.forms import SaveViewForm


@page("POST")
def save(request: SignedIn) -> HttpResponse:
    where, query = request.POST.get("page", ""), request.POST.get("query", "")
    if where not in PAGES:
        raise Http404
    teams = Team.objects.visible_to(request.user).values_list("slug", flat=True)
    form = SaveViewForm(sent(request), teams=teams)
    view = None
    if form.is_valid():
        given = form.cleaned_data
        try:
            view = save_view(
                user=request.user, page=where, name=given["name"], query=query, share=given["share"]
            )
        except ViewProblem as problem:
            form.add_error("name", str(problem))
    if view is None:
        back = _address(where, query if len(query) <= LONGEST_QUERY else "")
        return alone(
            request, form, title="Save these filters", act=("save", "Save"), back=back, section=where
        )
    who = f"{view.team.slug} lists it too" if view.team else "only you list it"
    messages.success(
        request,
        f"Saved as {untrusted.plain(view.name, 80)}; {who}. Whoever has its link sees what they may see.",
    )
    return redirect("saved-view", view.key)


@page()
def saved(request: SignedIn, key: uuid.UUID) -> HttpResponse:
    """The shareable address of a view: it leads to the page with its filters."""
    view = get_object_or_404(SavedView, key=key, page__in=PAGES)
    return redirect(_address(view.page, view.query))


@page("POST")
def remove(request: SignedIn, key: uuid.UUID) -> HttpResponse:
    view = get_object_or_404(SavedView, key=key, page__in=PAGES)
    if not remove_view(user=request.user, view=view):
        raise Http404
    messages.success(request, "The view was removed.")
    return redirect(view.page)


def _address(where: str, query: str) -> str:
    return f"{reverse(where)}?{query}" if query else reverse(where)
