"""Imports a fleet file: all of it or nothing, with the same code for a dry run and the real one.

A file is the whole description of the deployments it lists: nodes and tenants that it no longer
names are closed, and consent that it no longer states is withdrawn. Deployments it does not list are
left alone. CSV cannot say everything, so an empty cell there leaves a field, a tenant or a consent
as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from django.db import DataError, IntegrityError, OperationalError, transaction

from kvaudit.auditor.fleetfile import FleetDeployment, FleetPlan, Problem, parse_fleet, parse_fleet_csv
from kvaudit.auditor.text.quoting import without_keys
from kvaudit.server import clock
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.fleet.filekeys import FileKeys, Refused
from kvaudit.server.fleet.import_apply import Application
from kvaudit.server.fleet.import_diff import Difference
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import Act, record_all

Format = Literal["yaml", "csv"]


@dataclass(frozen=True, slots=True)
class Imported:
    """One deployment of the file: its row (None in a dry run), whether it is new, and its plans."""

    slug: str
    new: bool
    plans: tuple[FleetPlan, ...]
    deployment: Deployment | None


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """With ``problems`` nothing was changed. ``notes`` are sentences about what is still missing."""

    problems: tuple[Problem, ...] = ()
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    deployments: tuple[Imported, ...] = field(default=())
    dry_run: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(without_keys, self.notes)))  # they name variables

    @property
    def done(self) -> bool:
        return not self.problems and not self.dry_run


def import_fleet(
    text: str | bytes,
    format: Format,
    actor: Actor,
    dry_run: bool,
    *,
    environment: Mapping[str, str] | None = None,
) -> ImportOutcome:
    """Import a fleet file in one transaction; never raises for what the file contains.

    ``environment`` is where ``key_env`` and ``headers_env`` are looked up. Pass it only for somebody
    who has that environment anyway (the command line): from a page, a file could name any variable
    of the server and have its value sent to any address. Without it, keys are entered on the page.
    Plans are returned for the caller, who stands above this app.
    """
    parsed = parse_fleet_csv(text) if format == "csv" else parse_fleet(text)
    if not parsed.usable:
        problems = parsed.problems or (Problem(0, "The file describes no deployment."),)
        return ImportOutcome(problems=problems, dry_run=dry_run)
    try:
        with transaction.atomic():
            outcome = _apply(parsed.deployments, format, actor, dry_run, environment)
            if outcome.problems or dry_run:
                transaction.set_rollback(True)
            return outcome
    except DataError:  # the parser's limits are ours; a file that finds a gap between them is refused too
        sentence = "A value in the file is longer or larger than can be stored."
        return ImportOutcome(problems=(Problem(0, sentence),), dry_run=dry_run)
    except (IntegrityError, OperationalError) as fault:
        if isinstance(fault, OperationalError) and not _is_deadlock(fault):
            raise
        sentence = "Somebody else changed the fleet at the same moment; import the file again."
        return ImportOutcome(problems=(Problem(0, sentence),), dry_run=dry_run)


def _is_deadlock(fault: OperationalError) -> bool:
    return getattr(fault.__cause__, "sqlstate", None) == "40P01"


def _apply(
    described: Sequence[FleetDeployment],
    format: Format,
    actor: Actor,
    dry_run: bool,
    environment: Mapping[str, str] | None,
) -> ImportOutcome:
    at = clock.now()
    slugs = [each.slug for each in described]
    known = {
        each.slug: each
        for each in Deployment.objects.select_for_update(of=("self",))
        .select_related("team")
        .filter(slug__in=slugs)
        .order_by("pk")
    }
    problems: list[Problem] = []
    differences: list[Difference] = []
    notes: list[str] = []
    imported: list[Imported] = []
    for each in described:
        application = Application(
            described=each,
            found=known.get(each.slug),
            actor=actor,
            at=at,
            partial=format == "csv",
            keys=FileKeys(each.slug, environment),
        )
        try:
            deployment = application.apply()
        except Refused as refused:
            problems.append(refused.problem)
            continue
        differences += application.differences
        notes += application.keys.notes
        imported.append(
            Imported(each.slug, each.slug not in known, each.plans, None if dry_run else deployment)
        )
    if problems:
        return ImportOutcome(problems=tuple(sorted(problems)), dry_run=dry_run)
    if not dry_run:
        _record(actor, differences)
    return ImportOutcome((), tuple(differences), tuple(notes), tuple(imported), dry_run)


def _record(actor: Actor, differences: Sequence[Difference]) -> None:
    """One entry per new team, and one per deployment with the digest of its differences."""
    by_deployment: dict[str, list[object]] = {}
    for difference in differences:
        by_deployment.setdefault(difference.deployment, []).append(difference.as_json())
    teams = [
        Act("team.created", f"team:{difference.name}")
        for difference in differences
        if difference.what == "team"
    ]
    acts = [
        Act("fleet.imported", f"deployment:{slug}", digest_of(changes))
        for slug, changes in by_deployment.items()
    ]
    record_all(actor=actor, acts=[*teams, *acts])
