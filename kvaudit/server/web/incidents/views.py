"""Incidents: what happened, what do we do, when may it go back? The list, one incident, reporting one."""

from __future__ import annotations

from django.contrib import messages
from django.forms import Form
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can, can_somewhere
from kvaudit.server.accounts.models import User
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import export as exporting
from kvaudit.server.incidents import opening, postmortem
from kvaudit.server.incidents.models import Incident, Severity, State
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.web.incidents import figure as figures
from kvaudit.server.web.incidents import forms
from kvaudit.server.web.incidents import page as table
from kvaudit.server.web.incidents.acts import ACTS
from kvaudit.server.web.kit import markdown as prose
from kvaudit.server.web.kit.figure import answer
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page, require
from kvaudit.server.web.kit.parts import action_items as action_table
from kvaudit.server.web.kit.parts.incident_file import as_file

CHANGED = (
    "Somebody saved this postmortem while you were writing. Theirs is shown below, yours is in the fields: take over "
    "what you need, then save again to replace it."
)
NOT_YOURS = "Incidents are worked on by operators of the deployment's team."


@page()
def incidents(request: SignedIn) -> HttpResponse:
    filters = table.Filters.from_query(request.GET)
    context = {
        "section": "incidents",
        "now": clock.now(),
        "filters": filters,
        "page": table.listed(request.user, filters),
        "states": [("lasting", "not closed"), *State.choices],
        "severities": Severity.choices,
        "may_open": can_somewhere(request.user, "edit_incidents"),
    }
    return render(request, "incidents/incidents.html", context)


@page()
def actions(request: SignedIn) -> HttpResponse:
    """What is to do after incidents, by whom and until when."""
    filters = action_table.Filters.from_query(request.GET)
    context = {
        "section": "incidents",
        "filters": filters,
        "shown": action_table.listed(request.user, filters, clock.now()),
        "states": action_table.STATES,
    }
    return render(request, "incidents/all_actions.html", context)


@page("GET", "POST")
def report(request: SignedIn) -> HttpResponse:
    """Open one by hand."""
    able = Deployment.objects.active().where_can(request.user, "edit_incidents").order_by("slug")
    slugs = list(able.values_list("slug", flat=True))
    if not slugs:
        require(request.user, "edit_incidents", None, NOT_YOURS)
    form = forms.OpenForm(
        sent(request), slugs=slugs, initial={"deployment": request.GET.get("deployment", "")}
    )
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        deployment = get_object_or_404(able.select_related("team"), slug=given.pop("deployment"))
        try:
            made = opening.open_by_hand(deployment=deployment, actor=request.user, **given)
        except IncidentProblem as problem:
            form.add_error(None, str(problem))
        else:
            return redirect("incident", made.pk)
    return render_form(request, "incidents/report.html", {"section": "incidents", "form": form})


@page()
def incident(request: SignedIn, pk: int) -> HttpResponse:
    return incident_page(request, incident_or_404(request.user, pk))


def incident_page(
    request: SignedIn, found: Incident, *, act: str = "", form: Form | None = None, row: str = ""
) -> HttpResponse:
    """The incident with its forms; ``form`` is that of ``act``, as it was sent and did not fit, at ``row``."""
    team = found.deployment.team
    may_edit = can(request.user, "edit_incidents", team)
    if act == "refuse":
        act = "approve"  # one form with two buttons
    at_row = form if row and form is not None else None
    made = {
        name.replace("-", "_"): each.make(found) for name, each in ACTS.items() if each.make and not each.row
    }
    made["event"] = ACTS["event"].make(found)  # type: ignore[misc]
    if form is not None and at_row is None and act.replace("-", "_") in made:
        made[act.replace("-", "_")] = form
    context = {
        "section": "incidents",
        "now": clock.now(),
        "incident": found,
        "shown": table.incident_page(found),
        "figure": figures.figure_of(found),
        "may_edit": may_edit and found.is_open,
        "may_act": may_edit,
        "may_quarantine": can(request.user, "quarantine", team),
        "may_approve": can(request.user, "approve", team),
        "may_run": can(request.user, "run_audits", team),
        "forms": made,
        "row_act": act if at_row else "",
        "row": int(row) if row else None,
        "row_form": at_row,
    }
    return render_form(request, "incidents/incident.html", context, wrong=form)


@page("GET", "POST")
def write(request: SignedIn, pk: int) -> HttpResponse:
    """The texts of the postmortem. Whoever saves over what somebody else saved meanwhile sees it first."""
    found = incident_or_404(request.user, pk)
    require(request.user, "edit_incidents", found.deployment.team, NOT_YOURS)
    initial = {"title": found.title, **{name: getattr(found, name) for name in postmortem.SECTIONS}}
    now = digest_of(initial)
    form = forms.SectionsForm(sent(request), initial={**initial, "seen": now})
    theirs: list[tuple[str, str]] = []
    if request.method == "POST" and form.is_valid():
        given = dict(form.cleaned_data)
        seen = given.pop("seen")
        if seen and seen != now:
            form.data = form.data.copy()  # type: ignore[attr-defined]
            form.data["seen"] = now  # type: ignore[index]
            theirs = _theirs(initial, given)
            form.add_error(None, CHANGED)
        else:
            try:
                postmortem.write_sections(
                    incident=found, actor=request.user, title=given.pop("title"), texts=given
                )
            except IncidentProblem as problem:
                form.add_error(None, str(problem))
            else:
                messages.success(request, "The postmortem is saved.")
                return redirect("incident", pk)
    context = {"section": "incidents", "form": form, "incident": found, "theirs": theirs}
    return render_form(request, "incidents/write.html", context)


def _theirs(now: dict[str, str], given: dict[str, str]) -> list[tuple[str, str]]:
    """Heading and text of what is stored and differs from what was sent."""
    headings = {"title": "Title", **postmortem.SECTIONS}
    return [
        (headings[name], text)
        for name, text in now.items()
        if text.strip() != given.get(name, "").replace("\r\n", "\n").strip()
    ]


@page()
def figure(request: SignedIn, pk: int) -> HttpResponse:
    return answer(*figures.draw(incident_or_404(request.user, pk)))


@page()
def preview(request: SignedIn, pk: int) -> HttpResponse:
    """The document as it would be handed on: whole for print, or public with internals removed."""
    found = incident_or_404(request.user, pk)
    is_public = request.GET.get("public") == "1"
    document = exporting.public(found) if is_public else exporting.document_of(found)
    text = exporting.to_markdown(document)
    context = {
        "section": "incidents",
        "incident": found,
        "public": is_public,
        "html": prose.render(_without_folds(text), headings_from=0),
        "removed": text.count(exporting.REMOVED),
    }
    return render(request, "incidents/preview.html", context)


@page(taken=("export.incident", "incident:{pk} {kind}"))
def export(request: SignedIn, pk: int, kind: str) -> HttpResponseBase:
    """Markdown, JSON or YAML; ``?public=1`` without internals."""
    found = incident_or_404(request.user, pk)
    is_public = request.GET.get("public") == "1"
    document = exporting.public(found) if is_public else exporting.document_of(found)
    name = f"incident-{found.pk}{'-public' if is_public else ''}"
    return as_file(document, kind, name)


def incident_or_404(user: User, pk: int) -> Incident:
    rows = Incident.objects.visible_to(user).select_related("deployment__team", "lead")
    return get_object_or_404(rows, pk=pk)


def _without_folds(markdown: str) -> str:
    """GitHub folds with HTML, which our own rendering takes for text: a heading instead."""
    return markdown.replace("<details><summary>", "### ").replace("</summary>", "").replace("</details>", "")
