"""Importing a fleet file from a page: read what was sent, show what would change, then change that.

The person confirms a difference, not a file: when the fleet has moved between the two, nothing is
changed and the new difference is shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.files.uploadedfile import UploadedFile
from django.db import transaction

from kvaudit.auditor.fleetfile import Problem
from kvaudit.auditor.fleetfile.excerpt import excerpt
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.schedule.defaults import add_file_plans, ensure_default_plans
from kvaudit.server.audits.schedule.plans import PlanProblem
from kvaudit.server.fleet.import_diff import Difference, counted
from kvaudit.server.fleet.import_file import Format, ImportOutcome, import_fleet

LARGEST = 2_000_000
"""Bytes that a page takes: a form field carries the text to the confirmation. Larger files go
through the command line."""

MOST_SHOWN = 300


class Unreadable(ValueError):
    """What was sent is no text of ours; a sentence for the person who sent it."""


@dataclass(frozen=True, slots=True)
class ShownProblem:
    """A problem with the text of its line, as it may be shown ("" when it is about the whole file)."""

    line: int
    sentence: str
    text: str


@dataclass(frozen=True, slots=True)
class Preview:
    """Either problems or differences; ``seen`` names the differences for the confirmation."""

    problems: Sequence[ShownProblem]
    differences: Sequence[Difference]
    summary: str
    notes: Sequence[str]
    seen: str
    left_out: int

    @property
    def acceptable(self) -> bool:
        return not self.problems

    @property
    def changes(self) -> bool:
        return bool(self.differences)


def text_of(upload: UploadedFile[bytes] | None, pasted: str) -> str:
    """The file if there is one, else what was pasted. Raises `Unreadable`."""
    if upload is not None:
        if (upload.size or 0) > LARGEST:
            raise Unreadable(_too_large(upload.size or 0))
        try:
            text: str = upload.read().decode("utf-8-sig")
        except UnicodeDecodeError as fault:
            raise Unreadable(
                f"The file is not UTF-8 text (byte {fault.start + 1}). Save it as UTF-8 and send it again."
            ) from None
    else:
        text = pasted
    if len(text.encode()) > LARGEST:
        raise Unreadable(_too_large(len(text.encode())))
    if not text.strip():
        raise Unreadable("There is nothing to import: choose a file or paste its text.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _too_large(size: int) -> str:
    return (
        f"The file has {size:,} bytes; a page takes {LARGEST:,}. Split it, or import it on the server "
        "with: manage.py fleet import FILE"
    )


def format_of(name: str, text: str) -> Format:
    """From the file's name, else from its first line: CSV starts with a row of column names."""
    if name.lower().endswith((".yaml", ".yml", ".json")):
        return "yaml"
    if name.lower().endswith(".csv"):
        return "csv"
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    return (
        "csv"
        if "," in first and ":" not in first.split(",")[0] and not first.startswith(("{", "["))
        else "yaml"
    )


def preview(text: str, format: Format, user: User) -> Preview:
    """What an import would do; changes nothing."""
    outcome = import_fleet(text, format, user, dry_run=True)
    return shown(outcome, text, format)


def shown(outcome: ImportOutcome, text: str, format: Format) -> Preview:
    lines = text.splitlines()
    return Preview(
        problems=[
            ShownProblem(problem.line, problem.sentence, excerpt(lines, problem.line, format))
            for problem in outcome.problems[:MOST_SHOWN]
        ],
        differences=outcome.differences[:MOST_SHOWN],
        summary=counted(outcome.differences),
        notes=outcome.notes[:MOST_SHOWN],
        seen=fingerprint(outcome.differences),
        left_out=max(0, len(outcome.differences) - MOST_SHOWN) + max(0, len(outcome.problems) - MOST_SHOWN),
    )


def fingerprint(differences: Sequence[Difference]) -> str:
    """SHA-256 over the differences: what a confirmation refers to."""
    body = json.dumps([difference.as_json() for difference in differences], sort_keys=True, default=str)
    return hashlib.sha256(body.encode()).hexdigest()


class Moved(Exception):
    """The fleet changed since the difference was shown."""


def confirm(text: str, format: Format, seen: str, user: User) -> ImportOutcome:
    """Import and plan, all or nothing. Raises `Moved` when the difference is no longer the one shown."""
    try:
        with transaction.atomic():
            outcome = import_fleet(text, format, user, dry_run=False)
            if outcome.problems:
                return outcome
            if fingerprint(outcome.differences) != seen:
                raise Moved
            for imported in outcome.deployments:
                assert imported.deployment is not None
                add_file_plans(deployment=imported.deployment, plans=imported.plans, actor=user)
                ensure_default_plans(deployment=imported.deployment, actor=user)
            return outcome
    except PlanProblem as problem:
        return ImportOutcome(
            problems=(Problem(0, f"Nothing was imported, since a plan is wrong: {problem}"),)
        )
