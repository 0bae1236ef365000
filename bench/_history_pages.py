"""The addresses that `history.py` asks for: every named one of the URL conf that answers a GET, or why not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from _history_rows import NEWEST

EXEMPT = {
    "login": "reads no rows, and is answered before anybody is known",
    "help": "reads no rows",
    "password-change": "a form without rows",
    "zone": "a form without rows",
    "saved-view": "answers by a redirect to a page that is measured with its filters",
    "run-progress": "the part of a run's page that is asked again while it runs",
    "settings-ledger-state": "the part of the ledger's page that is asked again while it is verified",
    "settings-ledger-export": "an export, streamed",
    "log-import-progress": "the part of an import's page that is asked again while it runs",
    "compliance-print": "the whole fleet, streamed",
    "compliance-csv": "an export, streamed",
    "history-csv": "an export, streamed: see --export",
    "history-json": "an export, streamed: see --export",
    "history-export-file": "an export, streamed",
    "history-export-progress": "the part of an export's page that is asked again while it runs",
    "exposure-csv": "an export of what the page shows",
    "request-log-csv": "an export, streamed",
    "incident-export": "an export of one incident, as on its page",
    "library-export": "an export of one incident, as on its page",
    "evidence": "one stored body",
    "attestation-evidence": "one stored body",
    "api:openapi-json": "reads no rows",
    "api:api-root": "reads no rows",
}
"""Name of an address -> why it is not measured."""

Address = Callable[[], str]


def pages() -> dict[str, tuple[str, Address]]:
    """What it is called in the table -> (name in the URL conf, a function that gives another address each time)."""
    from django.urls import reverse

    from kvaudit.server.accounts.models import User
    from kvaudit.server.audits.models import Plan, Result, Run
    from kvaudit.server.checklists.models import Attestation, OwnItem, Waiver
    from kvaudit.server.fleet.models import Deployment
    from kvaudit.server.incidents import library
    from kvaudit.server.incidents.models import Incident
    from kvaudit.server.inquiries.models import Export, RequestLog
    from kvaudit.server.notify.models import Channel, OutboxMessage

    draw = random.Random(5)
    slugs = list(Deployment.objects.values_list("slug", flat=True))
    teams = list(OwnItem.objects.values_list("team__slug", flat=True))
    logs = [
        {"slug": slug, "log": log, "work": work}
        for slug, log, work in RequestLog.objects.values_list("deployment__slug", "pk", "imported__pk")
    ]
    keys = {
        model: list(model.objects.values_list("pk", flat=True)) for model in (Waiver, Attestation, Incident)
    }
    channels = list(Channel.objects.values_list("pk", flat=True))
    messages = list(OutboxMessage.objects.values_list("channel_id", "pk")[:100])
    series = Plan.objects.current().values_list("series", flat=True)[0]
    own = list(OwnItem.objects.values_list("series", flat=True))
    newest = Result.objects.order_by("-pk").values_list("observed_at", flat=True)[0]
    runs = NEWEST + 1 - Run.objects.order_by("pk").values_list("pk", flat=True)[0]
    found: dict[str, tuple[str, Address]] = {}

    def add(
        called: str, name: str, query: str | Callable[[], str] = "", /, **given: Callable[[], Any]
    ) -> None:
        def address() -> str:
            said = query() if callable(query) else query
            return reverse(name, kwargs={key: value() for key, value in given.items()}) + said

        found[called] = name, address

    def one(rows: Any) -> Callable[[], Any]:
        return lambda: draw.choice(rows)

    def constant(value: object) -> Callable[[], Any]:
        return lambda: value

    def back(days: int) -> str:
        return f"{newest - timedelta(days=days):%Y-%m-%d}"

    def run() -> int:
        return NEWEST - draw.randrange(min(runs, 20_000))

    slug = one(slugs)
    add("fleet", "fleet")
    add("fleet, filtered", "fleet", "?verdict=fail&sort=audited")
    add("fleet, no match", "fleet", "?q=nowhere&engine=vllm")
    add("import of a fleet", "fleet-import")
    add("compliance", "compliance")
    add("compliance, filtered", "compliance", "?status=fail&item=1&sort=risk")
    add("compliance, no match", "compliance", "?q=nowhere")
    add("compliance as of last week", "compliance", f"?as_of={back(7)}")
    add("compliance, trend", "compliance-figure")
    add("summary", "summary")
    add("summary of last week", "summary", f"?week={newest - timedelta(days=7):%G-W%V}")
    add("summary as Markdown", "summary-markdown")
    add("checklist", "checklist")
    add("checklist, new item", "own-item-create", slug=one(teams))
    add("checklist, own item", "own-item", series=one(own))
    add("waivers", "waivers")
    add("waivers, no match", "waivers", "?state=refused&q=nowhere")
    add("waiver", "waiver", pk=one(keys[Waiver]))
    add("attestation", "attestation", pk=one(keys[Attestation]))
    add("item", "item", slug=slug, key=constant("1"))
    for act in ("attest", "waive"):
        add(f"item, {act}", act, slug=slug, key=constant("D"))
        add(f"item of a team, {act}", f"{act}-team", slug=one(teams), key=constant("D"))
    add("plans", "plans")
    add("plan", "plan", series=constant(series))
    add("plan, new", "plan-create")
    add("plan, change", "plan-change", series=constant(series))
    add("incidents", "incidents")
    add("incidents, no match", "incidents", "?state=open&severity=low&q=nowhere")
    add("incident", "incident", pk=one(keys[Incident]))
    add("incident, write", "incident-write", pk=one(keys[Incident]))
    add("incident, figure", "incident-figure", pk=one(keys[Incident]))
    add("incident, document", "incident-document", pk=one(keys[Incident]))
    add("incident, report", "incident-report")
    add("actions of incidents", "incident-actions")
    add("library", "library")
    add(
        "published incident", "library-incident", name=one([entry.document.id for entry in library.entries()])
    )
    add("settings", "settings")
    add("settings, account", "settings-account")
    add("settings, users", "settings-users")
    add("settings, users, no match", "settings-users", "?q=nowhere")
    add("settings, user", "settings-user", pk=one(list(User.objects.values_list("pk", flat=True))))
    add("settings, new user", "settings-user-create")
    add("settings, teams", "settings-teams")
    add("settings, team", "settings-team", slug=one(teams))
    add("settings, tokens", "settings-tokens", "?state=all")
    add("settings, keys", "settings-keys")
    add("settings, keys, missing", "settings-keys", "?missing=yes")
    add("settings, channels", "settings-channels")
    add("settings, new channel", "settings-channel-create")
    add("settings, channel", "settings-channel", pk=one(channels))
    found["settings, message"] = (
        "settings-channel-message",
        lambda: reverse("settings-channel-message", args=draw.choice(messages)),
    )
    add("settings, pins", "settings-pins")
    add("settings, pins, no match", "settings-pins", "?q=nowhere")
    add("settings, pin", "settings-pin", slug=slug)
    add("settings, ledger", "settings-ledger")
    add("settings, ledger, no match", "settings-ledger", "?kind=nothing&actor=nobody")
    add("deployment", "deployment", slug=slug)
    for name in ("checks", "capacity", "history", "nodes", "settings"):
        add(f"deployment, {name}", f"deployment-{name}", slug=slug)
    add("deployment, gate", "gate", slug=slug)
    add("deployment, events", "deployment-events", slug=slug)
    add("deployment, keys", "keys", slug=slug)
    add("deployment, session API", "session-plan", slug=slug)
    add("deployment, retire", "deployment-retire", slug=slug)
    for name in ("timeline", "capacity", "prefill"):
        add(f"deployment, {name} figure", "figure", slug=slug, name=constant(name))
    add("exposure, 30 days", "exposure", slug=slug)
    add("exposure, a year", "exposure", f"?from={back(365)}", slug=slug)
    log = one(logs)
    add("request log, import", "request-log-import", slug=slug)
    found["request log, progress"] = "log-import", lambda: _of(log(), "log-import", "work")
    found["request log"] = "request-log", lambda: _of(log(), "request-log", "log")
    add("run", "run", pk=run)
    add("compare", "compare", lambda: f"?a={run()}&b={run()}")

    def history(called: str, query: str | Callable[[], str] = "") -> None:
        add(f"history{called}", "history", query)

    history("")
    history(", further back", lambda: f"?before={NEWEST - draw.randrange(90_000)}")
    history(", deployment", lambda: f"?deployment={slug()}")
    history(", deployment and check", lambda: f"?deployment={slug()}&check=pool")
    history(", deployments by a part of the name", "?deployment=chat-1")
    history(", verdict", "?verdict=fail")
    history(", check and verdict", "?check=canary&verdict=error")
    history(", trigger", "?trigger=manual")
    history(", engine and version", "?engine=sglang&version=0.5.22")
    history(", days", f"?since={back(30)}&until={back(29)}")
    history(", no match: check", "?check=session")
    history(", no match: trigger", "?trigger=drift")
    history(", no match: actor", f"?actor={'admin'}")
    history(", no match: version", "?version=9.9")
    history(", no match: deployment and check", lambda: f"?deployment={slug()}&check=session")
    history(", no match: deployment and verdict", lambda: f"?deployment={slug()}&verdict=error&trigger=retry")
    history(
        ", no match: everything at once",
        f"?check=pool&verdict=error&engine=vllm&trigger=drift&since={back(300)}&until={back(1)}",
    )
    add("history, an export", "history-export", pk=one(list(Export.objects.values_list("pk", flat=True))))
    add("API, deployments", "api:list_deployments")
    add("API, deployment", "api:show_deployment", slug=slug)
    add("API, compliance", "api:compliance")
    add("API, compliance of one", "api:of_deployment", slug=slug)
    return found


def _of(row: dict[str, Any], name: str, key: str) -> str:
    from django.urls import reverse

    return reverse(name, args=[row["slug"], row[key]])


def forgotten(answers_get: Callable[[str, dict[str, Any]], bool]) -> list[str]:
    """Names of the URL conf that answer a GET and are neither measured nor exempt; and exempt ones that are gone."""
    from django.urls import get_resolver

    measured = {name for name, _ in pages().values()}
    every = dict(_named(get_resolver().url_patterns))
    return [
        *sorted(
            n for n, given in every.items() if n not in measured | EXEMPT.keys() and answers_get(n, given)
        ),
        *sorted(f"{name} (exempt, but not there)" for name in EXEMPT.keys() - every.keys()),
        *sorted(f"{name} (exempt and measured)" for name in EXEMPT.keys() & measured),
    ]


_SOMETHING = {"int": 1, "uuid": "00000000-0000-0000-0000-000000000007"}


def _named(patterns: Iterable[Any], space: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, arguments that fit it) of every address below ``patterns``."""
    for pattern in patterns:
        if hasattr(pattern, "url_patterns"):
            yield from _named(
                pattern.url_patterns, space + (f"{pattern.namespace}:" if pattern.namespace else "")
            )
        elif pattern.name:
            kinds = {name: type(kind).__name__ for name, kind in pattern.pattern.converters.items()}
            yield (
                space + pattern.name,
                {
                    name: _SOMETHING.get(kind.removesuffix("Converter").lower(), "x")
                    for name, kind in kinds.items()
                },
            )
