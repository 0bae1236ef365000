"""Writes the postmortem: sections, impact, timeline, causes, action items; and closing the incident.

Everything that people wrote keeps its author and its earlier versions.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import date, datetime

from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import access_of, require
from kvaudit.server.accounts.actors import actor_name
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.incidents import action_enforcement
from kvaudit.server.incidents.models import (
    ActionChange,
    ActionItem,
    Cause,
    ImpactLine,
    Incident,
    State,
    TimelineEvent,
)
from kvaudit.server.incidents.models.narrative import ActionState, Certainty, Confidence, Measure
from kvaudit.server.incidents.transitions import IncidentProblem, locked, move
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

SECTIONS: Mapping[str, str] = {
    "summary": "Summary",
    "detection": "How it was detected",
    "missed_by": "Detection gaps",
    "overlap": "How the causes combined",
    "lessons": "Lessons",
}
"""Field of the incident -> its heading, in the order of the document."""


@transaction.atomic
def write_sections(*, incident: Incident, actor: User, texts: Mapping[str, str], title: str = "") -> Incident:
    """Store the Markdown of the sections given; the others stay. Raises IncidentProblem, PermissionDenied."""
    row = _editable(incident, actor)
    changed = []
    for field in SECTIONS:
        if field in texts:
            text = texts[field].replace("\r\n", "\n").strip()
            if len(text) > 20_000:
                raise IncidentProblem(f"{SECTIONS[field]} has more than 20,000 characters.")
            setattr(row, field, clean_text(text, 20_000))
            changed.append(field)
    if named := clean_text(" ".join(title.split()), 200):
        row.title = named
        changed.append("title")
    row.save(update_fields=changed)
    _recorded(row, actor, "postmortem.written", [{name: getattr(row, name) for name in sorted(changed)}])
    return row


@transaction.atomic
def put_event(
    *,
    incident: Incident,
    actor: User,
    at: datetime,
    text: str,
    source: str = "",
    confidence: str = Confidence.STATED,
    replaces: TimelineEvent | None = None,
) -> TimelineEvent:
    """Add an event, or a new version of ``replaces``; the version before stays to be read."""
    row = _editable(incident, actor)
    said = clean_text(text.strip(), 4_000)
    if not said:
        raise IncidentProblem("Say what happened.")
    if confidence not in Confidence.values:
        raise IncidentProblem(f"The confidence is one of {', '.join(Confidence.values)}.")
    if at > clock.now():
        raise IncidentProblem("A timeline holds what has happened: that moment is still to come.")
    series = _close(row, replaces)
    event = TimelineEvent.objects.create(
        incident=row,
        series=series,
        at=at,
        text=said,
        source=clean_text(source.strip(), 500),
        confidence=confidence,
        author=actor_name(actor),
    )
    _recorded(row, actor, "postmortem.event", [str(series), at.isoformat(), said, event.source, confidence])
    return event


@transaction.atomic
def put_impact(
    *,
    incident: Incident,
    actor: User,
    measure: str,
    certainty: str,
    statement: str,
    source: str = "",
    replaces: ImpactLine | None = None,
) -> ImpactLine:
    """Add an impact line, or a new version of one. What is known says where from."""
    row = _editable(incident, actor)
    said = clean_text(" ".join(statement.split()), 500)
    if measure not in Measure.values or certainty not in Certainty.values:
        raise IncidentProblem("Choose what is counted and how certain it is.")
    if not said:
        raise IncidentProblem("Say what is known, estimated or unknown.")
    if certainty != Certainty.UNKNOWN and not source.strip():
        raise IncidentProblem("A known or estimated number needs its source: a count, a log, a run.")
    series = _close(row, replaces)
    line = ImpactLine.objects.create(
        incident=row,
        series=series,
        measure=measure,
        certainty=certainty,
        statement=said,
        source=clean_text(source.strip(), 500),
        author=actor_name(actor),
    )
    _recorded(row, actor, "postmortem.impact", [str(series), measure, certainty, said, line.source])
    return line


@transaction.atomic
def withdraw(*, line: TimelineEvent | ImpactLine, actor: User) -> None:
    """Take a line out of the document; it stays in the edit history."""
    row = _editable(line.incident, actor)
    _close(row, line)
    _recorded(row, actor, "postmortem.withdrawn", [str(line.series)])


@transaction.atomic
def add_cause(*, incident: Incident, actor: User, text: str) -> Cause:
    row = _editable(incident, actor)
    said = clean_text(text.strip(), 4_000)
    if not said:
        raise IncidentProblem("Say what the cause is.")
    cause = Cause.objects.create(incident=row, text=said, author=actor_name(actor))
    _recorded(row, actor, "postmortem.cause", [cause.pk, said])
    return cause


@transaction.atomic
def withdraw_cause(*, cause: Cause, actor: User) -> None:
    row = _editable(cause.incident, actor)
    Cause.objects.filter(pk=cause.pk, withdrawn_at=None).update(
        withdrawn_at=clock.now(), withdrawn_by=actor_name(actor)
    )
    _recorded(row, actor, "postmortem.cause_withdrawn", [cause.pk])


@transaction.atomic
def add_action(
    *, incident: Incident, actor: User, title: str, owner: User, due: date, enforced_by: str
) -> ActionItem:
    """An action item, tied to the check or checklist item that enforces it. Raises IncidentProblem."""
    row = _editable(incident, actor)
    named = clean_text(" ".join(title.split()), 300)
    if not named:
        raise IncidentProblem("Say what is to be done.")
    if access_of(owner).role_in(row.deployment.team_id) is None:
        raise IncidentProblem(
            f"{owner.get_username()} is not a member of {row.deployment.team}, so cannot own this."
        )
    if enforced_by not in dict(action_enforcement.choices(row.deployment)):
        raise IncidentProblem("Tie it to the check or checklist item that will fail if it is undone.")
    item = ActionItem.objects.create(incident=row, title=named, owner=owner, due=due, enforced_by=enforced_by)
    ActionChange.objects.create(item=item, actor=actor_name(actor), after=item.state, reason="added")
    _recorded(
        row, actor, "action.added", [item.pk, named, owner.get_username(), due.isoformat(), enforced_by]
    )
    return item


@transaction.atomic
def step_action(*, item: ActionItem, to: str, actor: User, reason: str) -> ActionItem:
    """Done, dropped or reopened. Done only while what enforces it is green. Works on closed incidents too."""
    row = locked(item.incident)
    require(actor, "edit_incidents", row.deployment.team)
    found = ActionItem.objects.select_for_update(of=("self",)).get(pk=item.pk)
    if to not in ActionState.values:
        raise IncidentProblem("An action item is done, dropped or open.")
    if to == ActionState.DONE:
        standing = action_enforcement.enforcements(row.deployment, [found.enforced_by])
        if not found.enforced_by or not standing[found.enforced_by].green:
            said = standing[found.enforced_by].sentence if found.enforced_by else "nothing enforces it"
            raise IncidentProblem(f"It is done when what enforces it is green: {said}.")
    if to == ActionState.DROPPED and not reason.strip():
        raise IncidentProblem("Say why it is dropped.")
    try:
        action_enforcement.step(found, ActionState(to), actor=actor, reason=reason)
    except ValueError as problem:
        raise IncidentProblem(str(problem)) from None
    _recorded(row, actor, f"action.{to}", [found.pk, reason])
    return found


def hindrances(incident: Incident) -> list[str]:
    """Sentences: what keeps the incident from being closed; [] when nothing does."""
    found = []
    if incident.state != State.RESTORED:
        found.append(
            "The fix is not proved: the restore gate has not let the deployment back "
            f"(the incident is {incident.state})."
        )
    causes = incident.causes.filter(withdrawn_at=None).count()
    for field, heading in SECTIONS.items():
        if field == "overlap" and causes < 2:
            continue
        if not getattr(incident, field).strip():
            found.append(f"“{heading}” is empty.")
    if not causes:
        found.append("No cause is named.")
    stated = set(ImpactLine.objects.current().filter(incident=incident).values_list("measure", flat=True))
    for measure in (Measure.RESPONSES, Measure.TENANTS, Measure.LENGTHS):
        if measure not in stated:
            found.append(f"The impact says nothing of {measure.label.lower()}: known, estimated or unknown.")
    items = list(incident.action_items.exclude(state=ActionState.DROPPED))
    if not items:
        found.append("There is no action item.")
    found += [
        f"Action item “{item.title}” needs an owner, a due date and what enforces it."
        for item in items
        if not (item.owner_id and item.due and item.enforced_by)
    ]
    standing = action_enforcement.enforcements(incident.deployment, [item.enforced_by for item in items])
    found += [
        f"Action item “{item.title}” is said to be done, but {standing[item.enforced_by].sentence}."
        for item in items
        if item.state == ActionState.DONE and item.enforced_by and not standing[item.enforced_by].green
    ]
    return found


@transaction.atomic
def close(*, incident: Incident, actor: User, reason: str = "") -> Incident:
    """Close it: the fix is proved and the postmortem is written. Raises IncidentProblem with what is
    missing, PermissionDenied."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if missing := hindrances(row):
        raise IncidentProblem("It cannot be closed yet. " + " ".join(missing))
    return move(incident=row, to=State.CLOSED, actor=actor, reason=reason or "The postmortem is written.")


def _editable(incident: Incident, actor: User) -> Incident:
    """The locked row; a closed postmortem is not rewritten."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if row.state == State.CLOSED:
        raise IncidentProblem(f"Incident {row.pk} is closed: its postmortem is not rewritten.")
    return row


def _close(incident: Incident, line: TimelineEvent | ImpactLine | None) -> uuid.UUID:
    """End the version that is replaced; its series, or a new one. Raises IncidentProblem when somebody
    else has edited it since."""
    if line is None:
        return uuid.uuid4()
    if line.incident_id != incident.pk:
        raise IncidentProblem("That line belongs to another incident.")
    ended = type(line).objects.filter(pk=line.pk, valid_to=None).update(valid_to=clock.now())
    if not ended:
        raise IncidentProblem("Somebody has edited that line meanwhile: look at it again.")
    return line.series


def _recorded(incident: Incident, actor: User, kind: str, said: list[object]) -> None:
    record(actor=actor, kind=kind, subject=f"incident:{incident.pk}", digest=digest_of(said))
