"""From a log to counts by tenant: right, bounded, and without a name or id in clear."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from kvaudit.server.fleet.models import Tenant
from kvaudit.server.inquiries.models import RequestLog
from kvaudit.server.inquiries.request_logs import importer
from kvaudit.server.inquiries.request_logs.classification import Zone
from kvaudit.server.inquiries.request_logs.importer import import_log, keyed, known_tenants
from kvaudit.server.ledger.models import Entry
from tests.factories import a_deployment, a_user

pytestmark = pytest.mark.django_db

ZERO = datetime(2026, 9, 1, tzinfo=UTC)
ZONE = Zone(ZERO + timedelta(days=1), ZERO + timedelta(days=5), 681_274, 1_048_570)


def line(day, tokens, tenant="acme", id_="r-1", prefill=""):
    return f"{(ZERO + timedelta(days=day)).isoformat()},{tokens},{tenant},{id_},{prefill}\n"


def brought(*lines, deployment=None, zones=(ZONE,), **more):
    deployment = deployment or a_deployment()
    body = "time,prompt_tokens,tenant,id,prefill_seconds\n" + "".join(lines)
    return import_log(
        deployment=deployment, file=io.BytesIO(body.encode()), name="requests.csv", since=ZERO,
        until=ZERO + timedelta(days=10), zones=list(zones), actor=more.pop("actor", "system:tests"),
    )  # fmt: skip


def test_only_time_and_length_inside_the_zone_count():
    log = brought(
        line(0, 700_000),  # before it opened
        line(1, 681_274),  # both ends: inclusive
        line(2, 681_273),  # too short
        line(3, 1_048_569),
        line(3, 1_048_570),  # exclusive
        line(5, 700_000),  # closed again
        line(2, 700_000, "other"),
        line(11, 700_000),  # outside of the window
        line(2, "many"),
    )
    assert (log.lines, log.requests, log.in_window, log.inside, log.problem_count) == (9, 8, 7, 3, 1)
    assert log.problems == [{"line": 10, "sentence": "prompt_tokens is missing or no whole number."}]
    counts = {tenant.tenant: (tenant.requests, tenant.inside) for tenant in log.tenants.all()}
    assert counts == {
        keyed("tenant", log.deployment, "acme"): (6, 2),
        keyed("tenant", log.deployment, "other"): (1, 1),
    }
    assert [hit.line for hit in log.hits.all()] == [3, 5, 8]


def test_no_name_and_no_id_is_stored_in_clear(settings):
    secret, id_ = "planted-tenant-4711", "planted-id-0815"
    log = brought(line(2, 700_000, secret, id_))
    with connection.cursor() as cursor:
        for table in ("requestlog", "tenantcount", "requesthit", "prefillbucket"):
            cursor.execute(f"SELECT row_to_json(t)::text FROM inquiries_{table} t")
            text = json.dumps(cursor.fetchall())
            assert secret not in text
            assert id_ not in text
    first = log.hits.get()
    assert len(first.tenant) == len(first.request) == 64
    # Another key or another deployment gives other hashes: nobody can compare them without this installation.
    assert brought(line(2, 700_000, secret, id_)).hits.get().tenant != first.tenant
    settings.SECRET_KEY = "another-key-" * 4
    assert keyed("tenant", log.deployment, secret) != first.tenant


def test_tenants_of_the_fleet_file_are_recognised():
    deployment = a_deployment()
    Tenant.objects.create(deployment=deployment, name="acme")
    log = brought(line(2, 700_000), deployment=deployment)
    assert known_tenants(deployment)[log.tenants.get().tenant] == "acme"


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(importer, "MOST_TENANTS", 3)
    monkeypatch.setattr(importer, "MOST_HITS", 4)
    monkeypatch.setattr(importer, "MOST_PROBLEMS", 2)
    log = brought(*(line(2, 700_000, f"tenant-{n}") for n in range(10)), *["broken\n"] * 5)
    assert (log.inside, log.tenants_left_out, log.problem_count) == (10, 7, 5)
    assert (log.tenants.count(), log.hits.count(), len(log.problems)) == (3, 4, 2)


def test_prefill_seconds_become_a_p5_from_59_requests():
    log = brought(
        *(line(2, 700_000, prefill="4.0") for _ in range(59)),
        *(line(2, 9_000, prefill="0.5") for _ in range(58)),
    )
    assert [(bucket.low, bucket.n, bucket.p5 and round(bucket.p5, 1)) for bucket in log.prefill.all()] == [
        (8_192, 58, None),
        (524_288, 59, 4.0),
    ]


def test_the_import_is_in_the_ledger_with_the_files_digest():
    log = brought(line(2, 700_000))
    entry = Entry.objects.order_by("-sequence").first()
    assert (entry.kind, entry.digest) == ("request_log.imported", log.sha256)


def test_only_auditors_import():
    deployment = a_deployment()
    with pytest.raises(PermissionDenied):
        brought(line(2, 700_000), deployment=deployment, actor=a_user(team=deployment.team, role="viewer"))
    brought(line(2, 700_000), deployment=deployment, actor=a_user(team=deployment.team, role="auditor"))


def test_the_command_reads_a_file(tmp_path):
    deployment = a_deployment("chat-large")
    path = tmp_path / "requests.csv"
    path.write_text(
        "time,prompt_tokens,tenant,id\n" + "".join(line(2, n * 100_000)[:-2] + "\n" for n in range(12))
    )
    out = io.StringIO()
    call_command(
        "request_log", "chat-large", str(path), "--from", "2026-09-01", "--to", "2026-09-09", "--low", "681274",
        "--high", "1048570", stdout=out,
    )  # fmt: skip
    log = RequestLog.objects.get(deployment=deployment)
    assert log.inside == 4
    assert f"/d/chat-large/exposure/logs/{log.pk}/" in out.getvalue()
    assert "4 requests" in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nobody", "x", "--from", "2026-09-01"], "no deployment"),
        (["chat-large", "/nowhere", "--from", "2026-09-01"], "cannot be read"),
        (["chat-large", "x", "--from", "soon"], "no date"),
        (["chat-large", "x", "--from", "2026-09-01", "--low", "9", "--high", "8"], "whole numbers"),
    ],
)
def test_the_command_refuses_in_sentences(tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("nothing")
    a_deployment("chat-large")
    with pytest.raises(CommandError, match=word):
        call_command("request_log", *arguments)


def test_the_command_tells_its_progress_beside_its_output(tmp_path, monkeypatch):
    from kvaudit.server.ops.management.commands import request_log

    monkeypatch.setattr(importer, "STEP", 200)
    monkeypatch.setattr(request_log, "EVERY", 0)
    path = tmp_path / "requests.csv"
    path.write_text(
        "time,prompt_tokens,tenant,id,prefill_seconds\n" + line(1, 700_000) * 20 + "broken\n" * 50
    )
    out, told = io.StringIO(), io.StringIO()
    call_command(
        "request_log", a_deployment().slug, str(path), "--from=2026-09-01", stdout=out, stderr=told
    )  # fmt: skip
    lines = told.getvalue().splitlines()
    assert len(lines) > 3
    assert all("lines, " in each for each in lines)
    assert "could not be read" in lines[-1]
    assert "MB read" not in out.getvalue()
