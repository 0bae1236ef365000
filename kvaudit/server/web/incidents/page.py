"""What the incident pages show, gathered with a fixed number of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString

from kvaudit.server.accounts.models import User
from kvaudit.server.incidents import (
    action_enforcement,
    opening,
    postmortem,
    restore,
    restore_gate,
    result_meaning,
    system_timeline,
)
from kvaudit.server.incidents.models import (
    ActionItem,
    Citation,
    ImpactLine,
    Incident,
    Quarantine,
    Severity,
    State,
    TimelineEvent,
)
from kvaudit.server.incidents.restore_facts import facts_of
from kvaudit.server.web.incidents.stages import Course, Now, now_of
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import Page, choice, keyset_page, position, text
from kvaudit.server.web.kit.markdown import render
from kvaudit.server.web.kit.parts.leak_explanation import Mechanism, mechanism_until

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    state: str = choice((*State.values, "lasting"))
    severity: str = choice(Severity.values)
    q: str = text()
    after: str = position(numeric=True)
    before: str = position(numeric=True)


def listed(user: User, filters: Filters) -> Page:
    """Two queries, however many incidents there are."""
    rows = Incident.objects.visible_to(user).listed()
    if filters.state == "lasting":
        rows = rows.lasting()
    elif filters.state:
        rows = rows.filter(state=filters.state)
    if filters.severity:
        rows = rows.filter(severity=filters.severity)
    if filters.q:
        rows = rows.filter(deployment__slug__icontains=filters.q) | rows.filter(title__icontains=filters.q)
    return keyset_page(rows, "pk", filters, newest_first=True, size=PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class Section:
    field: str
    heading: str
    html: SafeString
    empty: bool


@dataclass(frozen=True, slots=True)
class VersionedLine:
    """A versioned line with the versions before it, newest first."""

    row: Any
    earlier: Sequence[Any]
    html: SafeString | str = ""


@dataclass(frozen=True, slots=True)
class Item:
    row: ActionItem
    enforcement: action_enforcement.Enforcement | None
    changes: Sequence[Any]


@dataclass(frozen=True, slots=True)
class IncidentPage:
    incident: Incident
    citations: Sequence[Citation]
    first_steps: Sequence[str]
    quarantine: Quarantine | None
    sections: Sequence[Section]
    impact: Sequence[VersionedLine]
    events: Sequence[VersionedLine]
    withdrawn: Sequence[Any]
    system: Sequence[system_timeline.SystemEvent]
    causes: Sequence[tuple[Any, SafeString]]
    items: Sequence[Item]
    gate: Sequence[restore_gate.Requirement]
    gate_open: bool
    now: Now
    fixes: Sequence[Any]
    replays: Sequence[Any]
    external: Sequence[Any]
    overrides: Sequence[Any]
    usable_override: Any
    releases: Sequence[Any]
    transitions: Sequence[Any]
    hindrances: Sequence[str]
    mechanism: Mechanism | None


def incident_page(incident: Incident) -> IncidentPage:
    """Everything of one incident."""
    citations = list(incident.citations.with_results())
    checks = sorted({citation.result.check_id for citation in citations})
    lengths = [one for found in opening.lengths_of(incident, checks).values() for one in found]
    if not lengths and incident.affected_from:
        lengths = [incident.affected_from]
    facts = facts_of(incident)
    asked = restore_gate.requirements(facts)
    items = list(incident.action_items.select_related("owner").prefetch_related("changes"))
    standing = action_enforcement.enforcements(incident.deployment, [item.enforced_by for item in items])
    events, withdrawn = _lines(TimelineEvent, incident)
    held = Quarantine.objects.of(incident.deployment).first()
    fixes = list(incident.fixes.select_related("fixer"))
    override = restore.usable_override(incident, facts.fingerprint)
    hindrances = postmortem.hindrances(incident) if incident.is_open else []
    impact, _ = _lines(ImpactLine, incident)
    return IncidentPage(
        incident=incident,
        citations=citations,
        first_steps=result_meaning.first_steps(
            checks,
            lengths,
            [citation.result.next_step for citation in citations],
            stopped=any(citation.result.measures.get("wedged") for citation in citations),
        ),
        quarantine=held,
        sections=[
            Section(
                name, heading, render(getattr(incident, name), headings_from=2), not getattr(incident, name)
            )
            for name, heading in postmortem.SECTIONS.items()
        ],
        impact=impact,
        events=events,
        withdrawn=withdrawn,
        system=system_timeline.events_of(incident),
        causes=[
            (cause, render(cause.text, headings_from=3))
            for cause in incident.causes.filter(withdrawn_at=None)
        ],
        items=[Item(item, standing.get(item.enforced_by), list(item.changes.all())) for item in items],
        gate=asked,
        gate_open=all(each.met for each in asked),
        now=now_of(
            Course(
                state=incident.state,
                quarantined=held is not None,
                fixed=bool(fixes),
                gate=asked,
                override=override is not None,
                hindrances=len(hindrances),
            )
        ),
        fixes=fixes,
        replays=list(incident.replays.select_related("run", "original")),
        external=list(incident.external_results.select_related("uploader")),
        overrides=list(incident.overrides.select_related("requester", "decided_by")),
        usable_override=override,
        releases=list(incident.releases.select_related("released_by", "override").prefetch_related("runs")),
        transitions=list(incident.transitions.all()),
        hindrances=hindrances,
        mechanism=mechanism_until(
            incident.deployment_id, max(citation.result.run_id for citation in citations)
        )
        if citations
        else None,
    )


def _lines(kind: Any, incident: Incident) -> tuple[list[VersionedLine], list[Any]]:
    """Lines that hold, with their earlier versions, and the last versions of those withdrawn. One query."""
    series: dict[Any, list[Any]] = {}
    for row in kind._default_manager.filter(incident=incident):
        series.setdefault(row.series, []).append(row)
    held, withdrawn = [], []
    for rows in series.values():
        rows.sort(key=lambda row: (row.valid_from, row.pk), reverse=True)
        if rows[0].valid_to is None:
            text = render(rows[0].text, headings_from=4) if hasattr(rows[0], "text") else ""
            held.append(VersionedLine(rows[0], rows[1:], text))
        else:
            withdrawn.append(rows[0])
    if kind is TimelineEvent:
        held.sort(key=lambda line: (line.row.at, line.row.pk))
    return held, withdrawn
