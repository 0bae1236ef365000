"""What people do to an incident. Each act is one service; its sentence comes back as a message, its refusal at the
field that it concerns."""

from __future__ import annotations

from django import forms as django_forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect

from kvaudit.server.incidents.models import Incident
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.web.incidents.acts import ACTS, Act, Posted, replaced_event
from kvaudit.server.web.incidents.views import NOT_YOURS, incident_or_404, incident_page
from kvaudit.server.web.kit.page import SignedIn, page, require


@page("POST")
def act(request: SignedIn, pk: int) -> HttpResponse:
    """``act`` names what is done; goes back to the part of the page that it concerns, or shows the form again."""
    found = incident_or_404(request.user, pk)
    name = request.POST.get("act", "")
    if name not in ACTS:
        return HttpResponseBadRequest("There is no such act.")
    require(request.user, "edit_incidents", found.deployment.team, NOT_YOURS)
    wanted = ACTS[name]
    form = _bound(request, found, wanted)
    if not form.is_valid():
        return _again(request, found, name, form)
    try:
        said = wanted.do(Posted(found, request.user, form.cleaned_data, request.POST))
    except IncidentProblem as problem:
        form.add_error(wanted.field if wanted.field in form.fields else None, str(problem))
        return _again(request, found, name, form)
    except PermissionDenied as refusal:
        raise PermissionDenied(str(refusal) or "Your role does not allow this.") from None
    messages.success(request, said)
    response = redirect("incident", pk)
    response["Location"] += f"#{wanted.part}"
    return response


def _bound(request: SignedIn, incident: Incident, act: Act) -> django_forms.Form:
    """The form as it was sent; one without fields for an act that is only a button."""
    if act.make is None:
        return django_forms.Form(request.POST)
    row = _row(request, act)
    return act.make(incident, request.POST, request.FILES, row)


def _row(request: SignedIn, act: Act) -> str:
    text = request.POST.get(act.row, "") if act.row else ""
    return text if text.isascii() and text.isdigit() and len(text) < 19 else ""


def _again(request: SignedIn, incident: Incident, name: str, form: django_forms.Form) -> HttpResponse:
    incident.refresh_from_db()
    row = _row(request, ACTS[name])
    if name == "event" and row:
        row = _newest(request, incident)
    return incident_page(request, incident, act=name, form=form, row=row)


def _newest(request: SignedIn, incident: Incident) -> str:
    """The event's version of now, so that the text can be saved over it after a look; "" where it was withdrawn: the
    text is then offered as a new event."""
    old = replaced_event(incident, request.POST)
    assert old is not None
    newest = incident.events.filter(series=old.series, valid_to=None).first()
    return str(newest.pk) if newest else ""
