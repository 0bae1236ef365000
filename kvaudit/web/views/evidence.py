"""A stored body, redacted at the socket, as plain text: nothing in it can act on the reader's browser."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from kvaudit.audits.evidence import body_of
from kvaudit.audits.models import Run, RunEvidence
from kvaudit.web import foreign
from kvaudit.web.page import SignedIn, page, require

NOT_YOURS = (
    "Stored answers of engines are read by auditors; the verdict, its measures and digests are open to you."
)
MOST_SHOWN = 200_000


@page()
def evidence(request: SignedIn, pk: int, sha256: str) -> HttpResponse:
    run = get_object_or_404(
        Run.objects.visible_to(request.user).select_related("deployment__team"), pk=_bigint(pk)
    )
    require(request.user, "read_evidence", run.deployment.team, NOT_YOURS)
    uses = list(
        RunEvidence.objects.filter(run=run, evidence_id=foreign.query_text(sha256, 64)).select_related(
            "evidence"
        )
    )
    if not uses:
        raise Http404
    broken, body = "", b""
    try:
        body = body_of(uses[0].evidence)
    except Exception as fault:  # noqa: BLE001 - a damaged row must be said, whatever is damaged about it
        broken = f"{fault}" or "The stored bytes cannot be read."
    text = body.decode("utf-8", "backslashreplace")
    if "download" in request.GET and not broken:
        response = HttpResponse(body, content_type="application/octet-stream")
        response["Content-Disposition"] = f'attachment; filename="{uses[0].evidence_id}.txt"'
        return response
    context = {
        "section": "fleet",
        "now": timezone.now(),
        "run": run,
        "uses": uses,
        "stored": uses[0].evidence,
        "text": text[:MOST_SHOWN],
        "cut": max(0, len(text) - MOST_SHOWN),
        "broken": broken,
    }
    return render(request, "run/evidence.html", context, status=500 if broken else 200)


def _bigint(pk: int) -> int:
    """Larger numbers than the database knows name nothing."""
    if pk > 2**63 - 1:
        raise Http404
    return pk
