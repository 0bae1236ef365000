"""``manage.py request_log SLUG FILE --from DAY [--to DAY] [--low N --high N]``: import a large request log."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from kvaudit.server import clock
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.exposure.report import statement_of
from kvaudit.server.inquiries.request_logs.importer import Progress, Tell, import_log
from kvaudit.server.inquiries.request_logs.reader import NoLog
from kvaudit.server.inquiries.request_logs.sentences import beside, zones
from kvaudit.server.web.exposure.page import window_of

_ACTOR = "command:request_log"

EVERY = 2.0
"""Seconds between two lines of progress."""


class Command(BaseCommand):
    help = "Counts the requests of a log inside a deployment's danger zone, by tenant; keeps counts and keyed hashes."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("deployment", help="its slug")
        parser.add_argument("file", help="CSV or JSON lines; - for standard input")
        parser.add_argument("--from", required=True, help="a day (UTC), for instance 2026-08-27")
        parser.add_argument("--to", default="", help="the last day; default: now")
        parser.add_argument(
            "--low", default="", help="prompt tokens, inclusive; default: the danger zones found"
        )
        parser.add_argument("--high", default="", help="prompt tokens, exclusive")

    def handle(self, *args: Any, **options: Any) -> None:
        deployment = Deployment.objects.filter(slug=options["deployment"]).select_related("team").first()
        if deployment is None:
            raise CommandError(f"There is no deployment {options['deployment']!r}.")
        window = window_of({"from": options["from"], "to": options["to"]}, clock.now())
        if window.problem:
            raise CommandError(window.problem)
        statement = statement_of(deployment, window.since, window.until)
        asked = zones(deployment, statement, options["low"], options["high"])
        if asked.problem:
            raise CommandError(asked.problem)
        name = options["file"]
        try:
            with _opened(name) as file:
                log = import_log(
                    deployment=deployment,
                    file=file,
                    name=Path(name).name if name != "-" else "standard input",
                    since=window.since,
                    until=window.until,
                    zones=asked.zones,
                    actor=_ACTOR,
                    tell=self._tell(),
                )
        except OSError as problem:
            raise CommandError(f"{name} cannot be read: {problem.strerror}.") from None
        except NoLog as problem:
            raise CommandError(str(problem)) from None
        if not log.held_against:
            self.stdout.write(
                "No danger zone with known lengths was open in this window: give --low and --high."
            )
        unread = f", {log.problem_count:,} of them could not be read" if log.problem_count else ""
        self.stdout.write(
            f"{log.inside:,} requests inside the danger zone, of {log.in_window:,} in the window; "
            f"{log.lines:,} lines{unread}."
        )
        for sentence in beside(log):
            self.stdout.write(sentence)
        self.stdout.write(reverse("request-log", args=[deployment.slug, log.pk]))

    def _tell(self) -> Tell:
        """Progress on the error stream: the output stays what a script reads."""
        last = time.monotonic()

        def tell(progress: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= EVERY:
                last = time.monotonic()
                unread = f", {progress.problems:,} could not be read" if progress.problems else ""
                self.stderr.write(f"{progress.rows:,} lines, {progress.bytes / 1e6:,.0f} MB read{unread}")

        return tell


def _opened(name: str) -> IO[bytes]:
    return sys.stdin.buffer if name == "-" else Path(name).open("rb")
