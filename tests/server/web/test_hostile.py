"""Hostile text in every column that people, engines and files write, on every page and in every export.

The addresses come from the URL conf and the columns from the models: a new page, export or column is tried without
anybody thinking of it. What is refused where it is entered is tried by posting it to every form.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import models
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kvaudit.server.accounts.models import User
from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.api.urls import api
from kvaudit.server.fleet.models import Tenant
from kvaudit.server.inquiries.models import Export, LogImport, RequestHit, RequestLog, SavedView, TenantCount
from kvaudit.server.web.kit.parts.incident_file import WRITERS
from tests.factories import an_admin
from tests.server.web import builders
from tests.server.web.addresses import PATTERNS
from tests.server.web.test_strangers import EVERYBODYS, rows_of

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
EVIL = f"=cmd|' /C calc'!A0{SCRIPT}\u202e\u2066](javascript:alert(3))\x1b[31m" + "W" * 10_000
ACTING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\x00\x1b]")
LARGEST = 1_000_000
"""Bytes of a page or export here: there are few rows, of which each may show ten thousand characters."""

APPS = ("accounts", "fleet", "audits", "notify", "inquiries", "checklists", "incidents")
NOT_WRITTEN = {
    "password", "digest", "prefix", "sha256", "sealed", "token", "secret", "zone", "cron", "check_id", "item",
    "key", "engine", "role", "content", "fingerprint", "series", "url", "entry", "link", "content_type",
    "verdict", "severity", "state", "what", "before", "after", "kind", "event", "tenant", "request", "metric",
    "opened_by", "page", "query", "address", "subject_kind", "method", "backend", "format", "encoding",
}  # fmt: skip
"""Columns whose text is one of a list, a digest or a key, made by the product; the rest is written by others."""


def written(model: type[models.Model]) -> Iterator[models.Field[Any, Any]]:
    for field in model._meta.concrete_fields:
        text = isinstance(field, models.CharField | models.TextField)
        plain = text and not isinstance(field, models.SlugField | models.URLField | models.EmailField)
        if plain and not field.choices and field.name not in NOT_WRITTEN:
            yield field


def poisoned(value: Any) -> Any:
    """JSON with every text in it replaced that is a value, and not a name of ours."""
    if isinstance(value, dict):
        return {
            name: item if name in {"sha256", "kind", "state", "check", "since", "until", "at"} else poisoned(item)
            for name, item in value.items()
        }  # fmt: skip
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    return EVIL if isinstance(value, str) else value


POISONED_JSON = {
    "measures", "facts", "problems", "detail", "diff", "evidence", "conditions", "progress",
}  # fmt: skip


def poison() -> set[str]:
    """Every row of every model; returns the columns."""
    done = set()
    for label in APPS:
        for model in apps.get_app_config(label).get_models():
            if model._meta.proxy:
                continue
            texts = list(written(model))
            trees = [f for f in model._meta.concrete_fields if isinstance(f, models.JSONField)]
            for row in model._default_manager.all():
                changed: dict[str, Any] = {}
                for field in texts:
                    tail = str(row.pk) if field.unique or field.name in {"name", "title"} else ""
                    changed[field.name] = EVIL[: (field.max_length or 10_050) - len(tail)] + tail
                for tree in trees:
                    if tree.name in POISONED_JSON:
                        changed[tree.name] = poisoned(getattr(row, tree.attname))
                if changed:
                    model._default_manager.filter(pk=row.pk).update(**changed)
                    done |= {f"{label}.{model.__name__}.{name}" for name in changed}
    return done


@pytest.fixture
def world(people, pair) -> dict[str, Any]:
    """Everything that there is to show, poisoned; address name -> what it is called with."""
    builders.a_state(
        pair, {**dict.fromkeys(builders.REQUIRED, "pass"), "pool": "fail"}, measures=builders.SHORT_POOL
    )
    builders.a_change(pair.nodes.first())
    body = json.dumps({"version": EVIL, "model": EVIL}).encode()
    run = builders.a_run(pair, {"pool": "fail", "version": "error"}, measures={"odd": EVIL}, bodies=[body])
    named = rows_of(people, pair)
    admin = an_admin("boss")
    now = timezone.now()
    Tenant.objects.create(deployment=pair, name="acme")
    log = RequestLog.objects.get(deployment=pair)
    RequestLog.objects.update(problem_count=1, problems=[{"line": 2, "sentence": "This is no JSON object."}])
    TenantCount.objects.create(log=log, tenant="0" * 64, requests=2, inside=1)
    RequestHit.objects.create(log=log, line=1, at=now, tokens=700_000, tenant="0" * 64)
    LogImport.objects.create(
        deployment=pair,
        name="x",
        size=1,
        since=now - timedelta(days=1),
        until=now,
        state="failed",
        sentence="No.",
    )
    for page in ("fleet", "compliance", "history"):
        SavedView.objects.create(user=admin, page=page, name="mine", query="q=%3Cscript%3E%E2%80%AE")
        SavedView.objects.create(
            user=people.operating_user, team=people.team, page=page, name="ours", query=""
        )
    poison()
    Export.objects.update(user=admin, query="deployment=%3Cscript%3Ealert%281%29%E2%80%AE")
    client = Client()
    client.force_login(User.objects.get(pk=admin.pk))
    return {"client": client, "named": named, "run": run, "admin": User.objects.get(pk=admin.pk)}


def addresses(named: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for pattern in PATTERNS:
        if not pattern.pattern.converters:
            yield pattern.name, reverse(pattern.name)
        elif pattern.name in named:
            given = named[pattern.name]
            kinds = tuple(WRITERS) if "kind" in given else ("",)
            for kind in kinds:
                yield (
                    pattern.name,
                    reverse(pattern.name, kwargs={**given, **({"kind": kind} if kind else {})}),
                )


def problems_of(answer: Any) -> list[str]:
    """What is wrong with a page or an export."""
    body = answer.getvalue()
    text = body.decode()
    kind = answer["Content-Type"].partition(";")[0]
    found = []
    if len(body) > LARGEST:
        found.append(f"{len(body):,} bytes")
    if kind == "text/html":  # what somebody edits is what is stored
        text = re.sub(r"<textarea.*?</textarea>|(?<=value=)\"[^\"]*\"", "", text, flags=re.S)
    if acting := ACTING.search(text):
        found.append(
            f"acting character {acting[0]!r} at {text[max(0, acting.start() - 140) : acting.start()]!r}"
        )
    if kind in ("text/html", "text/markdown") and (
        at := re.search(r"(?<!\\)<(?:script>alert|img src=x)", text)
    ):
        found.append(f"markup at {text[max(0, at.start() - 80) : at.start()]!r}")
    links = {
        "text/html": r"""<[^>]+(?:href|src|action)=["']?javascript:""",
        "text/markdown": r"[^\\]\]\(javascript:",
    }
    if kind in links and (at := re.search(links[kind], text)):
        found.append(f"a link that acts at {text[max(0, at.start() - 60) : at.end()]!r}")
    if kind == "text/csv":
        found += [f"formula {cell[:30]!r}" for row in csv.reader(io.StringIO(text)) for cell in row
                  if cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t"))]  # fmt: skip
    if kind == "application/json":
        json.loads(text)
    return found


NOT_READ = {"logout"}


def test_no_page_and_no_export_obeys_what_it_shows(world):
    client, wrong, read = world["client"], {}, set()
    client.raise_request_exception = False
    for name, address in addresses(world["named"]):
        answer = client.get(address)
        if name in NOT_READ or answer.status_code == 405:
            continue
        if answer.status_code >= 400:
            wrong[address] = [f"status {answer.status_code}"]
        elif answer.status_code == 200:
            read.add(name)
            if found := problems_of(answer):
                wrong[address] = found
    assert wrong == {}
    assert len(read) > 50


def test_every_address_with_rows_is_read(world):
    """Those of nobody's rows are public data of the package, tried by their own tests."""
    every = {pattern.name for pattern in PATTERNS}
    assert every - EVERYBODYS == {name for name, _ in addresses(world["named"])}


def test_the_api_says_it_in_words_alone(world):
    _, secret = create_token(owner=world["admin"], name="x", scopes=["read", "gate"], actor=world["admin"])
    client, wrong = world["client"], {}
    paths = {path for router in api._routers for path in router[1].path_operations}
    assert len(paths) >= 5
    for path in paths:
        answer = client.get(
            f"/api/v1{path}".replace("{slug}", "chat-large"), HTTP_AUTHORIZATION=f"Bearer {secret}"
        )
        if answer.status_code not in (200, 405):
            wrong[path] = [str(answer.status_code)]
        elif answer.status_code == 200 and (found := problems_of(answer)):
            wrong[path] = found
    assert not wrong


def test_every_form_takes_it_or_says_why_not(world):
    """All fields of every form on every page, one hostile text after the other; what was stored is then shown."""
    client, wrong = world["client"], {}
    client.raise_request_exception = False
    forms = set()
    for name, address in addresses(world["named"]):
        answer = client.get(address)
        assert answer.status_code < 500, address
        if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
            continue
        for form in re.findall(r'<form[^>]*method="post".*?</form>', answer.getvalue().decode(), re.S):
            target = re.search(r'action="([^"]*)"', form[: form.index(">")])
            fields = set(re.findall(r'<(?:input|textarea|select)[^>]*\bname="([^"]+)"', form))
            path = target[1].partition("?")[0] if target and target[1] else address
            forms.add((path, frozenset(fields - {"csrfmiddlewaretoken"}), name))
    skipped = ("/logout/", "/password/")
    for path, fields, name in sorted(forms, key=str):
        if path.startswith(skipped):
            continue
        for text in (EVIL, "\x00", "\u202e" * 50, "9" * 10_000, ""):
            answer = client.post(path, dict.fromkeys(fields, text))
            if answer.status_code >= 500:
                wrong[path, name] = (answer.status_code, text[:20])
            elif answer.status_code in (200, 422) and (found := problems_of(answer)):
                wrong[path, name] = found
    assert not wrong
    assert len(forms) > 25
    wrong = {address: problems_of(answer) for _, address in addresses(world["named"])
             if (answer := client.get(address)).status_code == 200}  # fmt: skip
    wrong = {address: found for address, found in wrong.items() if found}
    assert wrong == {}


def test_the_columns_that_others_write_are_many():
    """Of what is left out by name, nothing is a text that a person or an engine chose."""
    found = {
        f"{label}.{model.__name__}.{field.name}"
        for label in APPS
        for model in apps.get_app_config(label).get_models()
        for field in written(model)
    }
    for column in (
        "fleet.Deployment.model", "fleet.Deployment.owner", "fleet.NodeSnapshot.version", "fleet.Tenant.name",
        "audits.Result.summary", "audits.Result.next_step", "audits.CheckState.summary", "audits.Plan.name",
        "checklists.Attestation.statement", "checklists.Waiver.reason", "checklists.OwnItem.rule",
        "incidents.Incident.title", "inquiries.SavedView.name", "inquiries.RequestLog.name", "notify.Channel.name",
        "accounts.Team.name", "accounts.User.username",
    ):  # fmt: skip
        assert column in found
