"""Request logs: import one, see which tenants had requests in the danger zone, and how fast prompts were prefilled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from kvaudit.server import clock
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.exposure.report import statement_of
from kvaudit.server.inquiries.models import LogImport, RequestHit, RequestLog
from kvaudit.server.inquiries.request_logs import import_queue
from kvaudit.server.inquiries.request_logs.classification import Judged
from kvaudit.server.inquiries.request_logs.importer import keyed, known_tenants
from kvaudit.server.inquiries.request_logs.percentiles import Bucket, too_fast
from kvaudit.server.inquiries.request_logs.reader import NoLog
from kvaudit.server.inquiries.request_logs.sentences import beside, zones
from kvaudit.server.inquiries.request_logs.upload import MOST_BYTES, TOO_LARGE, Receiver
from kvaudit.server.web.exposure import page as windows
from kvaudit.server.web.exposure.request_logs.forms import LogForm
from kvaudit.server.web.exposure.request_logs.upload import LogUpload
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.csv_file import streamed
from kvaudit.server.web.kit.forms import render_form
from kvaudit.server.web.kit.largest_body import takes
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require
from kvaudit.server.web.kit.progress import Live

MOST_TENANTS = 200
MOST_TYPED = 1_000
MOST_HITS = 50
MOST_IMPORTS = 5
AROUND = 1024 * 1024  # bytes of the form around the file
FRESH = timedelta(seconds=10)  # a small log is read by then
NOT_YOURS = "Request logs are imported by auditors of the deployment's team."


# The token is looked at by `_import_form`: looking reads the file, and where that goes is said first.
@csrf_exempt
@takes(MOST_BYTES + AROUND, TOO_LARGE)
@page("GET", "POST")
def import_page(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    require(request.user, "read_evidence", deployment.team, NOT_YOURS)
    upload = LogUpload(request, lambda name: Receiver(deployment=deployment, name=name, actor=request.user))
    request.upload_handlers = [upload]
    try:
        return _import_form(request, deployment, upload)
    finally:
        upload.drop()


@csrf_protect
def _import_form(request: SignedIn, deployment: Deployment, upload: LogUpload) -> HttpResponse:
    now = clock.now()
    given = request.POST if request.method == "POST" else request.GET
    window = windows.window_of(given, now)
    statement = statement_of(deployment, window.since, window.until)
    asked = zones(deployment, statement, given.get("low", ""), given.get("high", ""))
    form = LogForm(
        {
            "from": window.since_text,
            "to": window.until_text,
            "low": untrusted.query_text(given.get("low"), MOST_TYPED),
            "high": untrusted.query_text(given.get("high"), MOST_TYPED),
        }
    )
    if window.problem:
        form.add_error("from", window.problem)
    elif asked.problem:
        form.add_error("low", asked.problem)
    elif request.method == "POST":
        problem = upload.problem
        if upload.received is not None:
            try:
                work = upload.received.queue(since=window.since, until=window.until, zones=asked.zones)
            except NoLog as fault:
                problem = str(fault)
            else:
                return redirect("log-import", deployment.slug, work.pk)
        form.add_error("file", problem or "Choose the log: a CSV file or JSON lines.")
    context = {
        "section": "fleet",
        "now": now,
        "deployment": deployment,
        "zones": [zone for zone in asked.zones if zone.standing is Judged.DANGER],
        "form": form,
        "imports": LogImport.objects.of(deployment)[:MOST_IMPORTS],
    }
    return render_form(
        request, "exposure/import.html", context, status=422 if request.method == "POST" else 200
    )


@page()
def log_import(request: SignedIn, slug: str, pk: int) -> HttpResponse:
    """How an import goes."""
    work = _import_or_404(request, slug, pk)
    return render(request, "exposure/import_run.html", _told(work))


@page()
def log_import_progress(request: SignedIn, slug: str, pk: int) -> HttpResponse:
    """The part of the page that asks again every second."""
    work = _import_or_404(request, slug, pk)
    return render(request, "exposure/import_progress.html", _told(work))


@page("POST")
def log_import_cancel(request: SignedIn, slug: str, pk: int) -> HttpResponse:
    work = _import_or_404(request, slug, pk)
    if import_queue.cancel(work=work, actor=request.user):
        messages.success(request, "The import stops within seconds; nothing of it is kept.")
    else:
        messages.warning(request, "The import had already ended.")
    return redirect("log-import", work.deployment.slug, work.pk)


def _import_or_404(request: SignedIn, slug: str, pk: int) -> LogImport:
    deployment = deployment_or_404(request.user, slug)
    require(request.user, "read_evidence", deployment.team, NOT_YOURS)
    works = LogImport.objects.of(deployment).select_related("log", "requested_by", "deployment__team")
    work = get_object_or_404(works, pk=pk)
    if work.live and import_queue.close_lost(only=work):
        work = works.get(pk=work.pk)
    return work


def _told(work: LogImport) -> dict[str, object]:
    now = clock.now()
    return {
        "section": "fleet",
        "now": now,
        "deployment": work.deployment,
        "work": work,
        "live": _live(work, now),
    }


def _live(work: LogImport, now: datetime) -> Live:
    place = [work.deployment.slug, work.pk]
    return Live(
        page=reverse("log-import", args=place),
        poll=reverse("log-import-progress", args=place) if work.live else "",
        cancel="" if work.cancel_requested_at else reverse("log-import-cancel", args=place),
        what="import",
        pace="load delay:500ms" if now - work.requested_at < FRESH else "every 1s",
    )


@page()
def request_log(request: SignedIn, slug: str, pk: int) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    log = _log_or_404(deployment, pk)
    known = known_tenants(deployment)
    buckets = [Bucket(bucket.low, bucket.high, bucket.n, bucket.p5) for bucket in log.prefill.all()]
    name = untrusted.query_text(request.GET.get("name"), 1_000)
    sought = keyed("tenant", deployment, name) if name else ""
    tenants = list(log.tenants.all()[:MOST_TENANTS])
    context = {
        "section": "fleet",
        "now": clock.now(),
        "deployment": deployment,
        "log": log,
        "tenants": [(tenant, known.get(tenant.tenant, "")) for tenant in tenants],
        "more_tenants": len(tenants) == MOST_TENANTS,
        "concerned": log.tenants.filter(inside__gt=0).count(),
        "beside": beside(log),
        "lists": [
            (title, [(hit, known.get(hit.tenant, "")) for hit in hits[:MOST_HITS]], hits.count())
            for title, hits in (
                ("Requests inside, or while shown leaking", log.hits.exclude(standing=Judged.UNKNOWN)),
                ("Requests while nothing was known", log.hits.filter(standing=Judged.UNKNOWN)),
            )
        ],
        "buckets": [
            (bucket, {odd.bucket: odd for odd in too_fast(buckets)}.get(bucket)) for bucket in buckets
        ],
        "name": name,
        "sought": log.tenants.filter(tenant=sought).first() if sought else None,
        "sought_hash": sought,
    }
    return render(request, "exposure/log.html", context)


@page(taken=("export.request-log", "request-log:{pk}"))
def hits_csv(request: SignedIn, slug: str, pk: int) -> HttpResponseBase:
    """Every kept request inside the zone, shown leaking or not known: time, tokens, keyed hashes, standing."""
    deployment = deployment_or_404(request.user, slug)
    log = _log_or_404(deployment, pk)
    return streamed(_lines(log), f"danger-zone-{deployment.slug}-{log.pk}.csv")


def _lines(log: RequestLog) -> Iterator[tuple[object, ...]]:
    yield ("line", "time (UTC)", "prompt tokens", "tenant (keyed hash)", "request (keyed hash)", "standing")
    for hit in RequestHit.objects.filter(log=log).order_by("line").iterator(2_000):
        yield (hit.line, hit.at.isoformat(), hit.tokens, hit.tenant, hit.request, hit.standing)


def _log_or_404(deployment: Deployment, pk: int) -> RequestLog:
    logs = RequestLog.objects.of(deployment).select_related("imported_by")
    return get_object_or_404(logs, pk=pk)
