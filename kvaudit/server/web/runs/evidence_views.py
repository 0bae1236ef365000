"""A stored body, redacted at the socket, as plain text: nothing in it can act on the reader's browser.

Text that a model generated is stored sealed. It is opened for one answer at a time, for somebody who
says why, and the record knows of it before the reader does.
"""

from __future__ import annotations

from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render

from kvaudit.auditor.checks.evidence_source import WITHOUT_NONCE, asked_request
from kvaudit.server import clock
from kvaudit.server.accounts import logins
from kvaudit.server.audits.evidence import sealed_text
from kvaudit.server.audits.evidence.store import body_of
from kvaudit.server.audits.models import Run, RunEvidence
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.download import BYTES, download
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page, require
from kvaudit.server.web.runs.forms import ReasonForm

NOT_YOURS = (
    "Stored answers of engines are read by auditors; the verdict, its measures and digests are open to you."
)
MOST_SHOWN = 200_000


@page("GET", "POST")
def evidence(request: SignedIn, pk: int, sha256: str) -> HttpResponseBase:
    run = get_object_or_404(Run.objects.visible_to(request.user).select_related("deployment__team"), pk=pk)
    require(request.user, "read_evidence", run.deployment.team, NOT_YOURS)
    uses = list(
        RunEvidence.objects.filter(run=run, evidence_id=untrusted.query_text(sha256, 64)).select_related(
            "evidence"
        )
    )
    if not uses:
        raise Http404
    if uses[0].kind == sealed_text.KIND:
        return _sealed(request, run, uses)
    broken, body = "", b""
    try:
        body = body_of(uses[0].evidence)
    except Exception as fault:  # noqa: BLE001 - a damaged row must be said, whatever is damaged about it
        broken = f"{fault}" or "The stored bytes cannot be read."
    text = body.decode("utf-8", "backslashreplace")
    wanted = "download" in request.GET and not broken
    act = "evidence.downloaded" if wanted else "evidence.read"
    logins.note_taken(request.user, kind=act, subject=f"run:{run.pk} evidence:{uses[0].evidence_id}")
    if wanted:
        return download(body, f"{uses[0].evidence_id}.txt", BYTES)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "run": run,
        "uses": uses,
        "stored": uses[0].evidence,
        "text": text[:MOST_SHOWN],
        "cut": max(0, len(text) - MOST_SHOWN),
        "broken": broken,
    }
    return render(request, "runs/evidence.html", context, status=500 if broken else 200)


def _sealed(request: SignedIn, run: Run, uses: list[RunEvidence]) -> HttpResponse:
    """Length and digest; after a POST with a reason, the text, once."""
    stored = uses[0].evidence
    form = ReasonForm(sent(request), auto_id="%s")
    text, status = "", 422
    if request.method == "POST" and form.is_valid():
        try:
            text = sealed_text.open_for(
                run=run, evidence=stored, reason=form.cleaned_data["reason"], actor=request.user
            )
        except sealed_text.CannotOpen as fault:
            form.add_error("reason", str(fault))
            status = 409
    context = {
        "section": "fleet",
        "now": clock.now(),
        "run": run,
        "uses": uses,
        "stored": stored,
        "asked": _asked(uses[0].source),
        "opened": bool(text),
        "text": text[:MOST_SHOWN],
        "cut": max(0, len(text) - MOST_SHOWN),
        "form": form,
    }
    return render_form(request, "runs/sealed.html", context, status=status)


def _asked(source: str) -> str:
    """Which request was answered, and what its answer should have held; "" where the source does not say."""
    found = asked_request(source)
    if found is None:
        return ""
    nonce = {
        WITHOUT_NONCE: " It was to repeat the nonce of its own prompt, and does not hold it.",
        "answered": " It was to repeat the nonce of its own prompt, where it was asked for one.",
    }
    return (
        f"The answer to {found.name}, a prompt of {found.tokens:,} tokens sent as tenant {found.tenant} in round "
        f"{found.round} ({found.ended}).{nonce.get(found.ended, '')}"
    )
