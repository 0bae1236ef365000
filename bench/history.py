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

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from _history_stage import Stage, make  # noqa: E402

from tests import conftest  # noqa: E402 - the environment of the settings, without starting anything

PROMISE_MS, PROMISE_RATIO = 100.0, 1.5
QUICK_MS = 20.0
"""Below this a ratio says more about the clock than about the page."""
WARM = 2
"""Requests that fill caches of templates and of the database."""


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


def _run(sizes: list[int], options: argparse.Namespace) -> int:
    import django

    django.setup()
    from django.conf import settings

    settings.STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
    settings.ALLOWED_HOSTS = ["testserver"]
    logging.getLogger("django.request").setLevel(logging.CRITICAL)  # what is not 200 stands in the table
    for rows in sizes:
        make(rows, say)
    if not options.samples:
        return 0
    stages = [Stage(rows) for rows in sizes]
    began, load = time.monotonic(), os.getloadavg()[0]
    measure(stages, options.samples, options.only)
    say(
        f"{options.samples} samples of each page at each stage, in turn, after {WARM} warm ones, in "
        f"{time.monotonic() - began:.0f} s; load {load:.1f} to {os.getloadavg()[0]:.1f} on {os.cpu_count()} "
        "processors; milliseconds of processor time"
    )
    report(stages)
    if options.export:
        export()
    return verdict(stages, left_out())


def left_out() -> list[str]:
    """Pages that nobody thought of."""
    from _history_pages import forgotten
    from django.test import Client
    from django.urls import reverse

    client = Client(raise_request_exception=False)
    return forgotten(lambda name, given: client.get(reverse(name, kwargs=given)).status_code != 405)


def say(text: str) -> None:
    print(text, flush=True)


def measure(stages: list[Stage], samples: int, only: str) -> None:
    from django.core import signals
    from django.db import close_old_connections

    from kvaudit.server.ops import gunicorn_conf

    signals.request_started.disconnect(close_old_connections)
    signals.request_finished.disconnect(close_old_connections)
    stages[0].use()
    stages[0].client.get("/")
    gunicorn_conf.when_ready(None)  # as the server does it
    for name in stages[0].pages:
        if only in name:
            for sample in range(samples + WARM):
                for stage in stages:
                    stage.ask(name, count=sample >= WARM)


def report(stages: list[Stage]) -> None:
    say(f"{'':45}" + "".join(f"{f'{stage.rows:,}':>18}" for stage in stages))
    say(f"{'':45}" + f"{'p50':>10}{'p95':>8}" * len(stages) + f"{'ratio':>8}{'p95 wall':>10}{'queries':>9}")
    for name, last in stages[-1].timings.items():
        each = [stage.timings[name] for stage in stages]
        cells = "".join(f"{timing.p(0.5):10.1f}{timing.p(0.95):8.1f}" for timing in each)
        odd = f"  HTTP {last.status}" if last.status != 200 else ""
        wall, queries = last.p(0.95, wall=True), max(timing.queries for timing in each)
        say(f"{name:45}{cells}{grown_by(stages, name):8.1f}{wall:10.1f}{queries:9d}{odd}")


def grown_by(stages: list[Stage], name: str) -> float:
    """p95 at the largest stage for each at the smallest."""
    return stages[-1].timings[name].p(0.95) / stages[0].timings[name].p(0.95)


def export() -> None:
    from kvaudit.server.audits.evidence.export import exported_results
    from kvaudit.server.audits.state.history_query import Question
    from kvaudit.server.web.history.page import csv_rows, json_parts
    from kvaudit.server.web.kit.csv_file import lines as csv_lines

    for name, parts in (
        ("CSV", lambda: csv_lines(csv_rows(exported_results(Question())))),
        ("JSON", lambda: json_parts(exported_results(Question()), {})),
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


def verdict(stages: list[Stage], forgotten: list[str]) -> int:
    every = [(name, [stage.timings[name] for stage in stages]) for name in stages[0].timings]
    slow = [name for name, timings in every if any(timing.p(0.95) > PROMISE_MS for timing in timings)]
    grown = [
        name
        for name, timings in every
        if timings[-1].p(0.95) > QUICK_MS and grown_by(stages, name) > PROMISE_RATIO
    ]
    odd = [name for name, timings in every if any(timing.status != 200 for timing in timings)]
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
