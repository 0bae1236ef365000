"""Library: has this happened elsewhere, and would we have caught it? And whom do known bugs concern?"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.accounts.models import User
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import library as books
from kvaudit.server.incidents.document import DocumentProblem
from kvaudit.server.incidents.markdown import to_markdown
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.web.kit import markdown
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.kit.parts.incident_file import as_file
from kvaudit.server.web.library import forms

MOST_SHOWN = 200
"""Deployments named below an incident; all of them are counted."""


@page()
def library(request: SignedIn) -> HttpResponse:
    return _library(request, forms.ImportForm())


def _library(request: SignedIn, form: forms.ImportForm) -> HttpResponse:
    fleet = _fleet(request.user)
    rows = []
    for entry in books.entries():
        caught = Counter(each.answer for each in books.would_have_caught(entry.document, fleet))
        rows.append({"entry": entry, "sentence": _sentence(caught, len(fleet.deployments))})
    context = {
        "section": "library",
        "now": clock.now(),
        "rows": rows,
        "advisories": books.advisories_with(fleet),
        "may_import": can_somewhere(request.user, "edit_library"),
        "form": form,
    }
    return render_form(request, "library/library.html", context)


@page()
def published(request: SignedIn, name: str) -> HttpResponse:
    entry = _or_404(name)
    caught = books.would_have_caught(entry.document, _fleet(request.user))
    order = {"missed": 0, "caught": 1, "prevented": 2}
    context: dict[str, Any] = {
        "section": "library",
        "entry": entry,
        "document": entry.document,
        "html": markdown.render(to_markdown(entry.document), headings_from=0),
        "caught": sorted(caught, key=lambda each: (order[each.answer], each.deployment.slug))[:MOST_SHOWN],
        "more": max(0, len(caught) - MOST_SHOWN),
        "sentence": _sentence(Counter(each.answer for each in caught), len(caught)),
    }
    return render(request, "library/published.html", context)


@page()
def export(request: SignedIn, name: str, kind: str) -> HttpResponseBase:
    document = _or_404(name).document
    return as_file(document, kind, document.id)


@page("POST")
def import_incident(request: SignedIn) -> HttpResponse:
    form = forms.ImportForm(sent(request), request.FILES)
    if form.is_valid():
        try:
            made = books.import_incident(text=form.cleaned_data["file"].read(), actor=request.user)
        except (DocumentProblem, IncidentProblem) as problem:
            form.add_error("file", str(problem))
        else:
            messages.success(request, f"{made.name} is in the library.")
            return redirect("library-incident", made.name)
    return _library(request, form)


def _fleet(user: User) -> books.Fleet:
    return books.fleet_of(Deployment.objects.visible_to(user).active().order_by("slug"))


def _or_404(name: str) -> books.Entry:
    found = books.entry(name)
    if found is None:
        raise Http404
    return found


def _sentence(caught: Counter[str], count: int) -> str:
    """Would we have caught this? Never a plain yes where one deployment would not have."""
    if not count:
        return "No deployment to answer for."
    if caught["missed"] == count:
        return f"No: none of {count} would have noticed."
    said = [f"{caught[name]} {words}" for name, words in _WORDS.items() if caught[name]]
    return f"Of {count}: {', '.join(said)}."


_WORDS = {
    "missed": "would not have noticed",
    "caught": "would have caught it",
    "prevented": "could not have begun it",
}
