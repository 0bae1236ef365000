"""Tells whether quarantines, fixes, overrides, releases and steps of incidents are what the ledger recorded of
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.db import connection

from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents.models import (
    ExternalResult,
    Fix,
    Incident,
    Override,
    Quarantine,
    Release,
    Transition,
)
from kvaudit.server.ledger import record_check
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.models import Entry

BEGAN, ENDED = "deployment.quarantined", "deployment.released"
FIXED, SHOWN = "incident.fix_recorded", "incident.external_result"
APPROVED, REFUSED = "incident.override_approved", "incident.override_refused"
RELEASED = "incident.released"
STEPS = ("incident.open", "incident.mitigated", "incident.restored", "incident.closed")

_LAST = """
    SELECT DISTINCT ON (about) about, kind, sequence FROM (
        SELECT split_part(subject, ' ', 1) AS about, kind, sequence FROM ledger_entry WHERE kind IN (%s, %s)
    ) AS entry ORDER BY about, sequence DESC
"""

Row = Fix | ExternalResult | Override | Release


def unreleased(deployment: Deployment) -> list[str]:
    """A sentence where the ledger says that the deployment is under quarantine and no row does. Three queries."""
    about = f"deployment:{deployment.slug}"
    incidents = list(Incident.objects.filter(deployment=deployment).values_list("pk", flat=True))
    if not incidents:
        return []
    # Whole subjects: they are indexed, their beginnings are not.
    subjects = [f"{about} incident:{pk}" for pk in incidents]
    releases = Release.objects.filter(incident__in=incidents).values_list("incident_id", "pk")
    subjects += [f"{about} incident:{incident} release:{pk}" for incident, pk in releases]
    last = Entry.objects.filter(subject__in=subjects, kind__in=(BEGAN, ENDED)).order_by("-sequence").first()
    if last is None or last.kind == ENDED or Quarantine.objects.of(deployment).exists():
        return []
    return [_vanished(deployment.slug, last.sequence)]


def quarantines() -> str:
    """The first deployment whose quarantine is not what the ledger says, as a sentence; "" for none."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [BEGAN, ENDED])
        last = {
            about.removeprefix("deployment:"): (kind, sequence) for about, kind, sequence in cursor.fetchall()
        }
    held = set(Quarantine.objects.filter(valid_to=None).values_list("deployment__slug", flat=True))
    for slug, (kind, sequence) in sorted(last.items()):
        if kind == BEGAN and slug not in held:
            return _vanished(slug, sequence)
        if kind == ENDED and slug in held:
            return (
                f"{slug} is under quarantine, and entry {sequence} of the ledger says that it was released."
            )
    unknown = sorted(held - set(last))
    return f"{unknown[0]} is under quarantine, and the ledger does not know of it." if unknown else ""


def tests_differing(incident: Incident) -> list[str]:
    """Of what the restore gate of an incident looks at besides runs: sentences for what is not as recorded."""
    rows: list[Row] = [
        *incident.fixes.all(),
        *incident.external_results.all(),
        *incident.overrides.filter(approved=True),
    ]
    subjects = [_subject(row) for row in rows]
    entries = Entry.objects.filter(subject__in=subjects, kind__in=(FIXED, SHOWN, APPROVED))
    recorded = set(entries.values_list("subject", "kind", "digest")) if rows else set()
    return [
        f"{_named(row)} is not what the ledger recorded."
        for row in rows
        if (_subject(row), _kind(row), _digest(row)) not in recorded
    ]


def rows_differing(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    """Of entries of fixes, external results, decided overrides and releases, those whose row differs or is gone."""
    wanted: dict[str, set[int]] = {}
    for entry in entries:
        name, pk = _about(entry)
        wanted.setdefault(name, set()).add(pk)
    rows = {_subject(row): row for name, ids in wanted.items() for row in _found(name, ids)}
    for entry in entries:
        row = rows.get(entry.subject)
        if row is None:
            yield entry, f"What entry {entry.sequence} recorded ({entry.subject}) is gone."
        elif entry.kind != _kind(row) or entry.digest != _digest(row):
            yield entry, f"{_named(row)} is not what entry {entry.sequence} recorded."


def steps_differing(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    """Of entries of steps of incidents, those that no step comes to."""
    steps: dict[int, set[str]] = {}
    for step in Transition.objects.filter(incident__in={_incident(entry) for entry in entries}):
        digest = digest_of([step.before, step.after, step.reason, step.at.isoformat()])
        steps.setdefault(step.incident_id, set()).add(digest)
    for entry in entries:
        pk = _incident(entry)
        if entry.digest not in steps.get(pk, ()):
            yield (
                entry,
                f"The step of incident {pk} that entry {entry.sequence} recorded is gone or was changed.",
            )


def states_of_incidents() -> str:
    """The first incident whose state is not where its last step led, as a sentence."""
    last = Transition.objects.order_by("incident_id", "-at", "-id").distinct("incident_id")
    led = dict(last.values_list("incident_id", "after"))
    for pk, state in Incident.objects.order_by("pk").values_list("pk", "state"):
        if led.get(pk, state) != state:
            return f"Incident {pk} says {state}, and its last step led to {led[pk]}."
    return ""


def register() -> None:
    """Once, when the app starts."""
    record_check.derives(FIXED, SHOWN, APPROVED, REFUSED, RELEASED, by=rows_differing)
    record_check.derives(*STEPS, by=steps_differing)
    record_check.follows(quarantines)
    record_check.follows(states_of_incidents)


def _vanished(slug: str, sequence: int) -> str:
    return (
        f"Entry {sequence} of the ledger says that {slug} was put under quarantine, none says that it was released, "
        "and no row holds it any more."
    )


def _kind(row: Row) -> str:
    if isinstance(row, Override):
        return APPROVED if row.approved else REFUSED
    return FIXED if isinstance(row, Fix) else SHOWN if isinstance(row, ExternalResult) else RELEASED


def _subject(row: Row) -> str:
    return f"incident:{row.incident_id} {_name(row)}:{row.pk}"


def _name(row: Row) -> str:
    return next(name for name, model in _MODELS.items() if isinstance(row, model))


def _named(row: Row) -> str:
    words = {"fix": "Fix", "external": "External result", "override": "Override", "release": "Release"}
    return f"{words[_name(row)]} {row.pk} of incident {row.incident_id}"


def _digest(row: Row) -> str:
    if isinstance(row, Fix):
        return digest_of([row.description, row.at.isoformat()])
    if isinstance(row, ExternalResult):
        return str(row.evidence_id)
    if isinstance(row, Override):
        return digest_of([row.reason, row.fingerprint, row.approved, row.note])
    return digest_of(row.grounds)


_MODELS: dict[str, type[Fix] | type[ExternalResult] | type[Override] | type[Release]] = {
    "fix": Fix,
    "external": ExternalResult,
    "override": Override,
    "release": Release,
}


def _found(name: str, ids: Iterable[int]) -> Iterator[Row]:
    model = _MODELS.get(name)
    if model is not None:
        yield from model._default_manager.filter(pk__in=ids)


def _about(entry: Entry) -> tuple[str, int]:
    """``incident:1 fix:2`` -> ("fix", 2)"""
    name, _, number = entry.subject.partition(" ")[2].partition(":")
    return name, _whole(number)


def _incident(entry: Entry) -> int:
    return _whole(entry.subject.partition(" ")[0].removeprefix("incident:"))


def _whole(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
