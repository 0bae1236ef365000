"""Exports an incident of ours, whole or for the public: as a document, and as Markdown, JSON or YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from kvaudit.auditor.text.acting import acting, json_escaped
from kvaudit.server.fleet.models import Node, Tenant
from kvaudit.server.incidents import action_enforcement, opening, result_meaning, system_timeline
from kvaudit.server.incidents.document import Action, Document, Ground, Moment, Stated
from kvaudit.server.incidents.markdown import to_markdown
from kvaudit.server.incidents.models import ImpactLine, Incident, TimelineEvent

REMOVED = "[removed]"
SHORTEST = 3  # characters of a name that is looked for in texts; shorter ones are ordinary words

__all__ = ("document_of", "public", "to_json", "to_markdown", "to_yaml")


def document_of(incident: Incident, *, system: bool = True) -> Document:
    """Everything that is known and written. Times are UTC instants."""
    deployment = incident.deployment
    release = incident.releases.prefetch_related("runs").select_related("released_by", "override").first()
    moments = [
        Moment(_utc(event.at), event.text, event.source, event.confidence, event.author)
        for event in TimelineEvent.objects.current().filter(incident=incident)
    ]
    if system:
        moments += [
            Moment(
                _utc(event.at),
                event.text.strip(),
                f"run {event.run_id}" if event.run_id else "audit log",
                "stated",
                system=True,
            )
            for event in system_timeline.events_of(incident)
        ]
    items = list(incident.action_items.select_related("owner"))
    standing = action_enforcement.enforcements(deployment, [item.enforced_by for item in items])
    checks = opening.checks_of(incident)
    return Document(
        id=f"incident-{incident.pk}",
        title=incident.title,
        operator=deployment.team.name or deployment.team.slug,
        engine=", ".join(incident.builds),
        mode=", ".join(incident.roles),
        severity=incident.severity,
        state=incident.state,
        started=_utc(incident.window_from) if incident.window_from else "unknown (no valid pass before)",
        ended=_utc(incident.restored_at) if incident.restored_at else "",
        summary=incident.summary,
        impact=tuple(
            Stated(line.measure, line.certainty, line.statement, line.source)
            for line in ImpactLine.objects.current().filter(incident=incident)
        ),
        figures=_figures(incident),
        causes=tuple(cause.text for cause in incident.causes.filter(withdrawn_at=None)),
        overlap=incident.overlap,
        detection=incident.detection,
        missed_by=incident.missed_by,
        released=_released(release) if release is not None else "",
        grounds=tuple(
            Ground(each["title"], each["met"], each["sentence"])
            for each in (release.grounds["requirements"] if release is not None else ())
        ),
        timeline=tuple(sorted(moments, key=lambda moment: moment.at)),
        actions=tuple(
            Action(
                item.title,
                item.enforced_by,
                item.owner.get_username() if item.owner else "",
                item.due.isoformat() if item.due else "",
                item.state,
                standing[item.enforced_by].sentence if item.enforced_by else "",
            )
            for item in items
        ),
        lessons=incident.lessons,
        checklist=tuple(sorted({key for check in checks for key in result_meaning.items_of(check)})),
        caught_by=tuple(checks),
    )


def public(incident: Incident) -> Document:
    """The same without internals: no names of deployments, teams, nodes, people or tenants, no addresses,
    runs or fingerprints, no events of the audit log. What people wrote is kept but for such names: read
    the preview before it is used."""
    whole = document_of(incident, system=False)
    bare = replace(
        whole,
        id="incident",
        operator="",
        released="",
        started=whole.started[:10] if incident.window_from else whole.started,
        ended=whole.ended[:10],
        figures={name: value for name, value in whole.figures.items() if name not in _INTERNAL_FIGURES},
        grounds=tuple(Ground(ground.title, ground.met, "") for ground in whole.grounds),
        timeline=tuple(replace(event, who="") for event in whole.timeline),
        actions=tuple(
            Action(action.title, action.enforced_by, "", "", action.state) for action in whole.actions
        ),
    )
    hide = _hider(names_of(incident))
    return _map(bare, hide)


def names_of(incident: Incident) -> set[str]:
    """Every name that a public text must not hold."""
    deployment = incident.deployment
    found = {deployment.slug, deployment.team.slug, deployment.team.name, deployment.model, deployment.owner}
    found |= {deployment.contact, _host(deployment.entry)}
    for name, url in Node.objects.filter(deployment=deployment).values_list("name", "url"):
        found |= {name, url, _host(url)}
    found |= set(Tenant.objects.filter(deployment=deployment).values_list("name", flat=True))
    people = [incident.opened_by, *incident.transitions.values_list("actor", flat=True)]
    people += [*TimelineEvent.objects.filter(incident=incident).values_list("author", flat=True)]
    people += incident.fixes.values_list("fixer__username", flat=True)
    people += incident.action_items.exclude(owner=None).values_list("owner__username", flat=True)
    people += incident.releases.values_list("released_by__username", flat=True)
    found |= {name.removeprefix("user:") for name in people if not name.startswith("system:")}
    found |= set(incident.releases.values_list("fingerprint", flat=True)) | {incident.fingerprint}
    return {name for name in found if name and len(name) >= SHORTEST}


_INTERNAL_FIGURES = frozenset({"Deployment", "Fingerprint", "Runs cited"})
_ADDRESSES = re.compile(
    r"[\w.+-]+@[\w-]+\.[\w.-]+"  # e-mail
    r"|https?://[^\s)>\"']*\.(?:internal|local|lan|corp|intra|svc)\b[^\s)>\"']*"
    r"|https?://(?:localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:]+\])[^\s)>\"']*"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\brun \d+\b",
    re.IGNORECASE,
)


def _hider(names: Iterable[str]) -> Any:
    ordered = sorted(names, key=len, reverse=True)
    spelled = "|".join(re.escape(name) for name in ordered)
    pattern = re.compile(rf"(?<![\w-])(?:{spelled})(?![\w-])", re.IGNORECASE) if ordered else None

    def hide(text: str) -> str:
        without = _ADDRESSES.sub(REMOVED, text)
        return pattern.sub(REMOVED, without) if pattern else without

    return hide


def _map(document: Document, change: Any) -> Document:
    """Every text of the document through ``change``."""

    def each(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, tuple):
            return tuple(each(one) for one in value)
        if isinstance(value, dict):
            return {change(name): change(text) for name, text in value.items()}
        if hasattr(value, "__dataclass_fields__"):
            return replace(value, **{name: each(getattr(value, name)) for name in value.__dataclass_fields__})
        return value

    fixed = {"id", "severity", "state", "checklist", "caught_by", "prevented_by", "started", "ended"}
    return replace(
        document,
        **{
            name: each(getattr(document, name)) for name in document.__dataclass_fields__ if name not in fixed
        },
    )


def to_json(document: Document) -> str:
    return json_escaped(json.dumps(document.as_plain(), ensure_ascii=False, indent=2)) + "\n"


def to_yaml(document: Document) -> str:
    """One file that `library.import_incident` reads again."""
    import yaml

    told = yaml.safe_dump(document.as_plain(), sort_keys=False, allow_unicode=True, width=110)
    if acting(told):  # then everything beyond ASCII is escaped, and the document is the same
        told = yaml.safe_dump(document.as_plain(), sort_keys=False, allow_unicode=False, width=110)
    return str(told)


def _figures(incident: Incident) -> dict[str, str]:
    found = {"Deployment": incident.deployment.slug}
    if incident.affected_from:
        found["Affected lengths, as shown"] = (
            f"{incident.affected_from:,} to {incident.affected_to:,} tokens"
            if incident.affected_to and incident.affected_to != incident.affected_from
            else f"{incident.affected_from:,} tokens"
        )
    if incident.window_to:
        first = f"its first fail ({_utc(incident.window_to)})"
        found["Exposure window"] = (
            f"from the last valid pass of {incident.window_check} ({_utc(incident.window_from)}) to {first}"
            if incident.window_from
            else f"no beginning: {incident.window_check} had never passed before {first}"
        )
    if incident.first_evidence_at and incident.last_evidence_at:
        found["Evidence"] = f"{_utc(incident.first_evidence_at)} to {_utc(incident.last_evidence_at)}"
    if runs := sorted({row.result.run_id for row in incident.citations.select_related("result")}):
        found["Runs cited"] = ", ".join(map(str, runs))
    if incident.fingerprint:
        found["Fingerprint"] = incident.fingerprint
    return found


def _released(release: Any) -> str:
    how = "by override" if release.override_id else "on both tests"
    return f"{_utc(release.at)} {how}, by {release.released_by.get_username()}"


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
