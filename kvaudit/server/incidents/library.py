"""Loads published incidents, shipped or imported, and tells what the fleet would have made of each. Advisories
and the deployments that they match, from the last results of the version check."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from django.db import transaction

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.advisories.load import Advisory, shipped
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state.bulk_reads import among
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus
from kvaudit.server.audits.state.status import statuses
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents.document import Document, parse, parse_yaml
from kvaudit.server.incidents.models import LibraryEntry
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.ledger.services import record


@dataclass(frozen=True, slots=True)
class Entry:
    """One incident of the library; ``imported`` is None for the shipped ones."""

    document: Document
    imported: LibraryEntry | None = None

    @property
    def confidences(self) -> Mapping[str, int]:
        """How many lines of the timeline are how sure."""
        found: dict[str, int] = {}
        for moment in self.document.timeline:
            found[moment.confidence or "stated"] = found.get(moment.confidence or "stated", 0) + 1
        return found


def entries() -> list[Entry]:
    """Shipped and imported, newest first; an imported one replaces the shipped one of its id."""
    found = {document.id: Entry(document) for document in shipped_documents()}
    for row in LibraryEntry.objects.filter(replaced_at=None).select_related("imported_by"):
        found[row.name] = Entry(parse(row.document), row)
    return sorted(found.values(), key=lambda each: (each.document.started, each.document.id), reverse=True)


def entry(name: str) -> Entry | None:
    return next((each for each in entries() if each.document.id == name), None)


@lru_cache(maxsize=1)
def shipped_documents() -> tuple[Document, ...]:
    """The package's own, in the order of their ids."""
    folder = files("kvaudit.server.incidents") / "library"
    texts = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".yaml")}
    return tuple(parse_yaml(texts[name]) for name in sorted(texts))


@transaction.atomic
def import_incident(*, text: bytes, actor: User) -> LibraryEntry:
    """Add one YAML file to the library. Everybody sees it. Raises DocumentProblem, IncidentProblem."""
    if not can_somewhere(actor, "edit_library"):
        raise IncidentProblem("Incidents are imported by operators.")
    document = parse_yaml(text)
    LibraryEntry.objects.filter(name=document.id, replaced_at=None).update(replaced_at=clock.now())
    made = LibraryEntry.objects.create(
        name=document.id,
        document=document.as_plain(),
        sha256=hashlib.sha256(text).hexdigest(),
        imported_by=actor,
    )
    record(actor=actor, kind="library.imported", subject=f"library:{document.id}", digest=made.sha256)
    return made


@dataclass(frozen=True, slots=True)
class Caught:
    """What one deployment would have made of an incident. ``answer`` is *prevented*, *caught* or *missed*."""

    deployment: Deployment
    answer: str
    why: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """Deployments with their status, read once for all incidents and advisories. ``known`` is all that an answer
    depends on: deployments that share it share the answer."""

    deployments: tuple[Deployment, ...]
    status: Mapping[int, DeploymentStatus]
    known: Mapping[int, Hashable]


def fleet_of(deployments: Iterable[Deployment]) -> Fleet:
    """A fixed number of queries, however many deployments."""
    wanted = tuple(deployments)
    status = statuses(wanted)
    known = {pk: (each.said, tuple(each.required), frozenset(each.planned)) for pk, each in status.items()}
    return Fleet(wanted, status, known)


def would_have_caught(document: Document, fleet: Fleet) -> list[Caught]:
    """Answered from plans and last results, for each deployment. A check counts when a plan runs it and
    its last word is current; what has expired, never ran or ended in error catches nothing."""
    answers: dict[Any, tuple[str, str]] = {}
    found = []
    for deployment in fleet.deployments:
        status = fleet.status[deployment.pk]
        known = fleet.known[deployment.pk]
        if known not in answers:
            answers[known] = _answer(document, status.checks, status.planned)
        found.append(Caught(deployment, *answers[known]))
    return found


def _answer(document: Document, now: Mapping[str, CheckNow], planned: Collection[str]) -> tuple[str, str]:
    """``answer`` and ``why`` of `Caught`."""
    prevented = [
        check for check in document.prevented_by if check in now and now[check].verdict is Verdict.PASS
    ]
    if document.prevented_by and len(prevented) == len(document.prevented_by):
        return "prevented", f"{', '.join(prevented)} pass: it could not have begun"
    for check in document.caught_by:
        here = now.get(check)
        if here is not None and here.verdict in (Verdict.PASS, Verdict.FAIL) and check in planned:
            return "caught", f"{check} is planned and its last word ({here.verdict.value}) holds"
    return "missed", "; ".join(_why_not(document.caught_by, now, planned))


def _why_not(checks: Iterable[str], now: Mapping[str, CheckNow], planned: Collection[str]) -> list[str]:
    found = []
    for check in checks:
        here = now.get(check)
        if check not in known_checks.MODULES:
            found.append(f"this build has no check {check}")
        elif here is None or here.missing:
            found.append(f"{check} never ran")
        elif here.expired:
            found.append(f"{check} has expired")
        elif check not in planned:
            found.append(f"no plan runs {check}")
        else:
            found.append(f"{check} says {here.verdict.value}")
    return found or ["no check is known that would"]


@dataclass(frozen=True, slots=True)
class Matched:
    """An advisory and where the last version check found it: (deployment, outcome), surest first."""

    advisory: Advisory
    where: tuple[tuple[Deployment, str], ...]


_SUREST = ("applies", "undecided", "possible")


def advisories_with(fleet: Fleet) -> list[Matched]:
    """Every advisory of the shipped set; those that apply somewhere first. One query for the results."""
    wanted = {deployment.pk: deployment for deployment in fleet.deployments}
    found: dict[str, list[tuple[Deployment, str]]] = {}
    ids = [pk for status in fleet.status.values() if (pk := status.result_of("version")) is not None]
    for pk, builds in Result.objects.filter(among("id", ids)).values_list(
        "deployment_id", "measures__builds"
    ):
        surest: dict[str, str] = {}
        for build in builds if isinstance(builds, list) else []:
            for row in build.get("advisories", []) if isinstance(build, dict) else []:
                outcome, before = str(row.get("outcome")), surest.get(str(row.get("id")))
                if outcome in _SUREST and (before is None or _SUREST.index(outcome) < _SUREST.index(before)):
                    surest[str(row.get("id"))] = outcome
        for advisory_id, outcome in surest.items():
            found.setdefault(advisory_id, []).append((wanted[pk], outcome))
    rows = [
        Matched(
            advisory,
            tuple(sorted(found.get(advisory.id, ()), key=lambda one: (_SUREST.index(one[1]), one[0].slug))),
        )
        for advisory in shipped().advisories
    ]
    return sorted(rows, key=lambda each: (_rank(each), each.advisory.id))


def _rank(matched: Matched) -> int:
    return _SUREST.index(matched.where[0][1]) if matched.where else len(_SUREST)
