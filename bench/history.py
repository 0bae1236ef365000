"""Every list and detail page over 500 deployments and up to ten million results, timed on the server.

    .venv/bin/python bench/history.py [--rows 100000,1000000,10000000] [--keep FOLDER] [--samples 20] [--export]

Each stage is a database of its own (`_history_rows`). Every page of the URL conf (`_history_pages`) is asked through
Django's test client, without network and browser: milliseconds of processor time, Django's and the database's
together, at p50 and p95; p95 on the clock, which a busy machine stretches; and the number of queries. The promise:
p95 under 100 ms, and at the largest stage at most 1.5 x of the smallest. ``--export`` streams a million rows as CSV
and JSON and watches the memory.

``--keep`` leaves the databases in a folder, so that the next time every stage is measured without being built.
Their newest results are then as old as the databases, and expire after seven days.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from tests import conftest  # noqa: E402 - the environment of the settings, without starting anything

PROMISE_MS, PROMISE_RATIO = 100.0, 1.5
QUICK_MS = 20.0
"""Below this a ratio says more about the clock than about the page."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="100000,1000000,10000000")
    parser.add_argument("--samples", type=int, default=20, help="0 builds and measures nothing")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--only", default="", help="pages whose name contains this")
    options = parser.parse_args()
    state = options.keep or Path(tempfile.mkdtemp(prefix="kvaudit-bench-"))
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o755)
    cluster = conftest.Cluster(state.resolve())
    os.environ["DATABASE_URL"] = os.environ["DATABASE_OWNER_URL"] = cluster.url()
    try:
        cluster.start()
        return _run([int(text) for text in options.rows.split(",")], options)
    finally:
        if options.keep and cluster.child:
            cluster.child.stop()
        else:
            cluster.stop()
        conftest._cluster.stop()


def _run(stages: list[int], options: argparse.Namespace) -> int:
    import django

    django.setup()
    from django.conf import settings

    settings.STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
    settings.ALLOWED_HOSTS = ["testserver"]
    logging.getLogger("django.request").setLevel(logging.CRITICAL)  # what is not 200 stands in the table
    times: dict[str, list[Timing]] = {}
    for stage in stages:
        use(stage)
        if options.samples:
            say(f"{stage:,} results; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
            for name, timing in measure(options.samples, options.only).items():
                times.setdefault(name, []).append(timing)
            report(times, stages)
    if options.export:
        export()
    return verdict(times, left_out() if options.samples else [])


def left_out() -> list[str]:
    """Pages that nobody thought of."""
    from _history_pages import forgotten
    from django.test import Client
    from django.urls import reverse

    client = Client(raise_request_exception=False)
    return forgotten(lambda name, given: client.get(reverse(name, kwargs=given)).status_code != 405)


def say(text: str) -> None:
    print(text, flush=True)


def use(stage: int) -> None:
    """Connect to the database of a stage, made now unless it is there."""
    import _history_people as people
    import _history_rows as rows
    from django.core.management import call_command
    from django.db import connection

    fleet = "kvaudit"
    name = f"{fleet}_{stage}"
    _connect(fleet)
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM fleet_deployment LIMIT 1")
        if not cursor.fetchone():
            rows.make_fleet()
    _connect("postgres")
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        there = {row[0] for row in cursor.fetchall()}
        if name not in there:
            half_made = f"{name}_half_made"
            cursor.execute(f"DROP DATABASE IF EXISTS {half_made}")
            cursor.execute(f"CREATE DATABASE {half_made} TEMPLATE {fleet}")
            _connect(half_made)
            began = time.monotonic()
            rows.fill(stage)
            say(
                f"{stage:,} results after {time.monotonic() - began:.0f} s of COPY, VACUUM and ANALYZE included"
            )
            _connect("postgres")
            with connection.cursor() as renaming:
                renaming.execute(f"ALTER DATABASE {half_made} RENAME TO {name}")
    _connect(name)
    call_command("migrate", verbosity=0)
    people.furnish()
    rows.fill_ledger(stage)


def _connect(database: str) -> None:
    from django.db import connection

    connection.close()
    connection.settings_dict["NAME"] = database


class Timing:
    """Milliseconds of each request, of which the database's, and the number of queries."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.busy: list[float] = []  # processor time of this process and of its database backend
        self.queries: list[int] = []
        self.status = 200

    def p(self, share: float) -> float:
        """Of processor time: what a request takes on a machine that is not busy with others."""
        return _quantile(self.busy, share)


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _ran(pid: int) -> float:
    """Milliseconds that a process has spent on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def measure(samples: int, only: str) -> dict[str, Timing]:
    from _history_pages import pages
    from django.core import signals
    from django.db import close_old_connections, connection
    from django.test import Client

    from kvaudit.accounts.models import User
    from kvaudit.accounts.tokens import create_token
    from kvaudit.ops import gunicorn_conf

    client = Client(raise_request_exception=False)
    admin = User.objects.get(username="admin")
    client.force_login(admin)
    _, secret = create_token(owner=admin, name="bench", scopes=["read"], actor=admin)
    bearer = {"Authorization": f"Bearer {secret}"}
    # One connection throughout, so that its backend's time can be read.
    signals.request_started.disconnect(close_old_connections)
    signals.request_finished.disconnect(close_old_connections)
    connection.ensure_connection()
    backend = connection.connection.info.backend_pid
    client.get("/")
    gunicorn_conf.when_ready(None)  # as the server does it
    found = {}
    for name, (place, address) in pages().items():
        if only not in name:
            continue
        timing, headers = Timing(), bearer if place.startswith("api:") else {}
        for sample in range(samples + 2):
            asked: list[str] = []

            def noted(execute: Any, sql: Any, *rest: Any, asked: list[str] = asked) -> Any:
                asked.append(sql)
                return execute(sql, *rest)

            path = address()
            before = _ran(os.getpid()) + _ran(backend)
            start = time.perf_counter()
            with connection.execute_wrapper(noted):
                answer = client.get(path, headers=headers)
            wall = time.perf_counter() - start
            busy = _ran(os.getpid()) + _ran(backend) - before
            timing.status = max(timing.status, answer.status_code)
            if sample >= 2:  # the first two warm templates and caches
                timing.wall.append(wall * 1_000)
                timing.busy.append(busy)
                timing.queries.append(len(asked))
        found[name] = timing
    return found


def report(times: dict[str, list[Timing]], stages: list[int]) -> None:
    if not times:
        return
    head = f"{'page':45}" + "".join(
        f"{f'{stage:,}':>37}" for stage in stages[: max(map(len, times.values()))]
    )
    say(head)
    say(
        " " * 45 + f"{'p50 ms':>9}{'p95 ms':>9}{'p95 wall':>10}{'queries':>9}" * max(map(len, times.values()))
    )
    for name, timings in times.items():
        cells = "".join(
            f"{each.p(0.5):9.1f}{each.p(0.95):9.1f}{_quantile(each.wall, 0.95):10.1f}{max(each.queries):9d}"
            for each in timings
        )
        odd = next((f"  HTTP {each.status}" for each in timings if each.status != 200), "")
        say(f"{name:45}{cells}{odd}")


def export() -> None:
    from kvaudit.audits.exporting import lines
    from kvaudit.audits.history_query import Question
    from kvaudit.web.spreadsheets import lines as csv_lines
    from kvaudit.web.tables.history import csv_rows, json_parts

    for name, parts in (
        ("CSV", lambda: csv_lines(csv_rows(lines(Question())))),
        ("JSON", lambda: json_parts(lines(Question()), {})),
    ):
        began, count, size = time.monotonic(), 0, 0
        marks = []
        for part in parts():
            count += 1
            size += len(part)
            if count % 100_000 == 0:
                marks.append(_memory())
            if count >= 1_000_000:
                break
        say(
            f"export of {count:,} rows as {name}: {time.monotonic() - began:.0f} s, {size / 1e6:,.0f} MB; resident "
            f"memory at every 100,000 rows: {', '.join(f'{mark:.0f}' for mark in marks)} MB"
        )
    say(f"largest memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024:.0f} MB")


def _memory() -> float:
    """Resident memory now, MB."""
    pages_held = int(Path("/proc/self/statm").read_text().split()[1])
    return pages_held * resource.getpagesize() / 1e6


def verdict(times: dict[str, list[Timing]], forgotten: list[str]) -> int:
    slow = [name for name, timings in times.items() if any(each.p(0.95) > PROMISE_MS for each in timings)]
    grown = [
        name
        for name, timings in times.items()
        if len(timings) > 1 and timings[-1].p(0.95) > max(PROMISE_RATIO * timings[0].p(0.95), QUICK_MS)
    ]
    odd = [name for name, timings in times.items() if any(each.status != 200 for each in timings)]
    for said, names in (
        (f"p95 above {PROMISE_MS:.0f} ms", slow),
        (f"more than {PROMISE_RATIO} x from the smallest to the largest stage", grown),
        ("answered otherwise than by 200", odd),
        ("neither measured nor exempt", forgotten),
    ):
        say(f"{said}: {', '.join(names) or 'none'}")
    return 1 if slow or grown or odd or forgotten else 0


if __name__ == "__main__":
    if shutil.disk_usage(tempfile.gettempdir()).free < 30e9:
        say("less than 30 GB are free: all stages together take about 20")
    sys.exit(main())
