"""Import a fleet file: paste or upload, see what would change, confirm. Nothing is lost on an error."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string

from kvaudit.auditor.fleetfile.excerpt import kept
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.fleet.import_diff import counted
from kvaudit.server.fleet.import_file import Format
from kvaudit.server.web.fleet.file_import import page as importing
from kvaudit.server.web.kit.page import SignedIn, page


@page("GET", "POST")
def fleet_import(request: SignedIn) -> HttpResponse:
    if not can_somewhere(request.user, "edit_fleet"):
        raise PermissionDenied("Fleets are imported by operators.")
    if request.method == "POST":
        return _posted(request)
    sample = "sample" in request.GET
    text = render_to_string("fleet/sample.yaml") if sample else ""
    return _form(request, text=text, sample=sample)


def _posted(request: SignedIn) -> HttpResponse:
    upload = request.FILES.get("file")
    pasted = request.POST.get("text", "")
    try:
        text = importing.text_of(upload, pasted)
    except importing.Unreadable as problem:
        return _form(request, text=pasted, unreadable=str(problem), status=422)
    name = (upload.name or "") if upload is not None else ""
    chosen = request.POST.get("format", "")
    format: Format = (
        "csv" if chosen == "csv" else "yaml" if chosen == "yaml" else importing.format_of(name, text)
    )
    if request.POST.get("step") == "confirm":
        return _confirmed(request, text, format)
    found = importing.preview(text, format, request.user)
    if found.acceptable:
        return _form(request, text=text, format=format, preview=found)
    return _form(request, text=kept(text, found.problems, format), format=format, preview=found, status=422)


def _confirmed(request: SignedIn, text: str, format: Format) -> HttpResponse:
    try:
        outcome = importing.confirm(text, format, request.POST.get("seen", ""), request.user)
    except importing.Moved:
        again = importing.preview(text, format, request.user)
        moved = "The fleet changed since you looked, so nothing was imported. This is what would change now."
        return _form(request, text=text, format=format, preview=again, unreadable=moved, status=409)
    if outcome.problems:
        again = importing.shown(outcome, text, format)
        typed = kept(text, outcome.problems, format)
        return _form(request, text=typed, format=format, preview=again, status=422)
    messages.success(
        request, f"Imported: {counted(outcome.differences)}. The first audits start within a minute."
    )
    for note in outcome.notes[:20]:
        messages.warning(request, note)
    return redirect("fleet")


def _form(
    request: SignedIn,
    *,
    text: str,
    format: str = "",
    preview: importing.Preview | None = None,
    unreadable: str = "",
    sample: bool = False,
    status: int = 200,
) -> HttpResponse:
    context = {
        "section": "settings",
        "text": text.replace("\x00", "\ufffd"),
        "format": format,
        "preview": preview,
        "unreadable": unreadable,
        "sample": sample,
    }
    return render(request, "fleet/file_import.html", context, status=status)
