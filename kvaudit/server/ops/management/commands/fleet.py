"""``manage.py fleet import FILE [--dry-run]``: describe the fleet in a file, see what would change, apply it."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, transaction

from kvaudit.auditor.fleetfile.schema import LARGEST_FILE
from kvaudit.auditor.text.quoting import without_keys
from kvaudit.server.audits.schedule.defaults import add_file_plans, ensure_default_plans
from kvaudit.server.audits.schedule.plans import PlanProblem
from kvaudit.server.fleet.import_diff import counted
from kvaudit.server.fleet.import_file import Format, ImportOutcome, import_fleet

_ACTOR = "command:fleet"
_ERROR = 3


class Command(BaseCommand):
    help = "Imports a fleet file (YAML or CSV), all of it or nothing. Keys come from this environment."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        importing = commands.add_parser("import", help="import a fleet file")
        importing.add_argument("file", help="path, or - for standard input")
        importing.add_argument(
            "--dry-run", action="store_true", help="show what would change, change nothing"
        )
        importing.add_argument("--format", choices=("yaml", "csv"), help="default: by the file's name")
        importing.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        content = _read(options["file"])
        chosen: Format = options["format"] or ("csv" if options["file"].lower().endswith(".csv") else "yaml")
        try:
            outcome = import_and_plan(
                content, chosen, options["dry_run"], actor=_ACTOR, environment=os.environ
            )
        except PlanProblem as problem:
            raise CommandError(
                without_keys(f"Nothing was imported, since a plan is wrong: {problem}"), returncode=_ERROR
            ) from None
        except DatabaseError as error:
            raise CommandError(f"The database refused: {str(error).strip()}", returncode=_ERROR) from error
        if options["json"]:
            self.stdout.write(json.dumps(_document(outcome), default=str))
        elif not outcome.problems:
            self._tell(outcome)
        if outcome.problems:
            sentences = "\n".join(map(str, outcome.problems))
            raise CommandError(f"Nothing was imported.\n{sentences}", returncode=_ERROR)

    def _tell(self, outcome: ImportOutcome) -> None:
        for line in (*outcome.differences, *outcome.notes):
            self.stdout.write(str(line))
        start = "Dry run, nothing was changed: " if outcome.dry_run else "Imported: "
        self.stdout.write(start + counted(outcome.differences) + ".")


@transaction.atomic
def import_and_plan(
    content: bytes, format: Format, dry_run: bool, *, actor: str, environment: Mapping[str, str]
) -> ImportOutcome:
    """Import and plan, all or nothing. Raises `PlanProblem`."""
    outcome = import_fleet(content, format, actor, dry_run, environment=environment)
    for imported in outcome.deployments if outcome.done else ():
        assert imported.deployment is not None
        add_file_plans(deployment=imported.deployment, plans=imported.plans, actor=actor)
        ensure_default_plans(deployment=imported.deployment, actor=actor)
    return outcome


def _read(name: str) -> bytes:
    """At most one byte more than a fleet file may have; the parser says that it is too long."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(LARGEST_FILE + 1)
        with Path(name).open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except OSError as problem:
        raise CommandError(f"{name} cannot be read: {problem.strerror}.", returncode=_ERROR) from None


def _document(outcome: ImportOutcome) -> dict[str, Any]:
    return {
        "dry_run": outcome.dry_run,
        "imported": outcome.done,
        "problems": [{"line": problem.line, "sentence": problem.sentence} for problem in outcome.problems],
        "differences": [difference.as_json() for difference in outcome.differences],
        "notes": list(outcome.notes),
    }
