"""``manage.py expire_evidence``: drops old evidence that nothing rests on. Runs as retention's database role."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, ProgrammingError, close_old_connections

from kvaudit.server.audits.evidence import retention

TOUCH = 10.0
"""Seconds between two signs of life while it waits."""


class Command(BaseCommand):
    help = "Drops stored bodies that are older than AUDIT_EVIDENCE_DAYS and that nothing rests on."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--every", type=float, default=0, metavar="S", help="again every S seconds, until it is stopped"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        every = options["every"]
        while True:
            try:
                self._once()
            except CommandError as fault:
                if not every:
                    raise
                self.stderr.write(str(fault))
            if not every:
                return
            _wait(every)
            close_old_connections()

    def _once(self) -> None:
        try:
            gone = retention.expire()
        except ProgrammingError as error:
            raise CommandError(
                f"This database role may not drop evidence ({str(error).strip()}): start it with DATABASE_URL set to "
                "the role of DATABASE_RETENTION_URL, which manage.py initialise makes.",
                returncode=3,
            ) from error
        except DatabaseError as error:
            raise CommandError(f"The database refused: {str(error).strip()}", returncode=3) from error
        days = settings.AUDIT_EVIDENCE_DAYS
        self.stdout.write(
            f"Evidence of {gone.runs} runs older than {days:g} days dropped: {gone.bodies} bodies, {gone.bytes} bytes."
            if days
            else "Evidence is kept for good (AUDIT_EVIDENCE_DAYS is 0)."
        )
        self.stdout.flush()


def _wait(seconds: float) -> None:
    """Until the next pass; the file that a health check looks at is touched meanwhile."""
    alive = os.environ.get("KVAUDIT_ALIVE_FILE")
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if alive:
            Path(alive).touch()
        time.sleep(min(TOUCH, left))
