"""One attestation: who stated what, on which evidence, until when."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.store import body_of
from kvaudit.server.checklists import services
from kvaudit.server.checklists.models import Attestation
from kvaudit.server.checklists.scope import Scope, items_of
from kvaudit.server.web.compliance.claim_forms import NoteForm
from kvaudit.server.web.kit.download import BYTES, download
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page, require

NOT_YOURS = "Attached evidence is read by auditors; the statement and the file's digest are open to you."


@page("GET", "POST")
def attestation(request: SignedIn, pk: int) -> HttpResponse:
    found = _attestation_or_404(request.user, pk)
    scope = Scope.of(found.deployment, found.team)
    form = NoteForm(sent(request))
    if request.method == "POST" and form.is_valid():
        try:
            services.end_attestation(attestation=found, actor=request.user, reason=form.cleaned_data["note"])
        except services.ClaimProblem as problem:
            form.add_error("note", str(problem))
        else:
            messages.success(request, "The statement is taken back; the item stands as its checks say.")
            return redirect("attestation", pk)
    mine, approver = found.author_id == request.user.pk, can(request.user, "approve", scope.team)
    context = {
        "section": "compliance",
        "now": clock.now(),
        "attestation": found,
        "scope": scope,
        "item": next((item for item in items_of(scope.team) if item.key == found.item), None),
        "in_force": found.in_force(),
        "form": form,
        "may_end": found.in_force() and can(request.user, "attest", scope.team) and (mine or approver),
        "may_read": can(request.user, "read_evidence", scope.team),
    }
    return render_form(request, "compliance/attestation.html", context)


@page(taken=("evidence.downloaded", "attestation:{pk}"))
def evidence(request: SignedIn, pk: int) -> HttpResponseBase:
    """The attached file as it came, always as a download: nothing in it can act on the reader's browser."""
    found = _attestation_or_404(request.user, pk)
    scope = Scope.of(found.deployment, found.team)
    require(request.user, "read_evidence", scope.team, NOT_YOURS)
    if found.evidence is None:
        raise Http404
    try:
        body = body_of(found.evidence)
    except ValueError as fault:
        return HttpResponse(f"{fault}", status=500, content_type="text/plain; charset=utf-8")
    return download(body, f"attestation-{found.pk}-{found.evidence.pk[:12]}", BYTES)


def _attestation_or_404(user: User, pk: int) -> Attestation:
    rows = Attestation.objects.visible_to(user).select_related(
        "deployment__team", "team", "author", "ended_by", "evidence"
    )
    return get_object_or_404(rows, pk=pk)
