"""Every list and detail page over 500 deployments and up to ten million results, timed on the server.

    .venv/bin/python bench/history.py [--rows 100000,1000000,10000000] [--keep FOLDER] [--samples 20] [--export]

Builds the results by COPY, the newest first, so that each stage adds older history below what is there, and
asks every page through Django's test client (no network, no browser): milliseconds of processor time, Django's
and the database's together, at p50 and p95; the same on the clock, which a busy machine stretches; and the number
of queries. The promise: p95 under 100 ms, and at the largest stage at most 1.5 x of the
smallest. ``--export`` streams a million rows as CSV and JSON and watches the memory.

``--keep`` leaves the database in a folder and goes on from there the next time.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import conftest  # noqa: E402 - the environment of the settings, without starting anything

DEPLOYMENTS = 500
NODES = 4
CHECKS = ("version", "pool", "drift", "exposure", "accounting", "rejection", "coherence", "canary")
PER_RUN = 4
PROMISE_MS, PROMISE_RATIO = 100.0, 1.5
LARGEST_ID = 20_000_000
"""The newest result has this id; older ones lie below."""
RESULTS_A_DAY = 25_000
STATE_EVERY = 60  # results of a check to an interval of state: verdicts do not change all the time

SUMMARIES = {
    "pass": "The pool of 2,040,000 tokens holds the context of 1,048,576 with the headroom, on every node given.",
    "fail": "Prompts of 681,274 to 1,048,569 tokens are accepted but do not fit the prefill pool of 681,280 tokens.",
    "inconclusive": "The pool is not exposed by decode-0: /server_info answers without a token capacity.",
    "error": "prefill-0 refused the connection, so nothing was read.",
}
MEASURES = (
    '{"pool_tokens": 2040000, "context_tokens": 1048576, "reachable_tokens": 1048570, "headroom": 1.25, "danger_zone": '
    'null, "full_context_requests": 1, "nodes": [{"node": "prefill-0", "role": "prefill", "pool": 2040000, "limit": '
    '1048570}, {"node": "decode-0", "role": "decode", "pool": 2040000, "limit": 1048570}]}'
)
EVIDENCE = (
    '[{"kind": "response", "sha256": "' + "0" * 64 + '", "source": "GET http://prefill-0:30000/server_info"}]'
)
BEFORE = "It says nothing about nodes that are not listed."


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="100000,1000000,10000000")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--only", default="", help="pages whose name contains this")
    options = parser.parse_args()
    stages = [int(text) for text in options.rows.split(",")]
    state = options.keep or Path(tempfile.mkdtemp(prefix="kvaudit-bench-"))
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o755)
    cluster = conftest.Cluster(state.resolve())
    os.environ["DATABASE_URL"] = os.environ["DATABASE_OWNER_URL"] = cluster.url()
    try:
        cluster.start()
        return _run(stages, options)
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
    from django.core.management import call_command
    from django.db import connection

    settings.STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
    settings.ALLOWED_HOSTS = ["testserver"]
    logging.getLogger("django.request").setLevel(logging.CRITICAL)  # what is not 200 stands in the table
    call_command("migrate", verbosity=0)
    fleet = Fleet.found() or Fleet.made()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM audits_result")
        there = cursor.fetchone()[0]
    times: dict[str, list[Timing]] = {}
    for stage in stages:
        if there < stage:
            began = time.monotonic()
            fill(fleet, there, stage)
            there = stage
            say(f"{stage:,} results after {time.monotonic() - began:.0f} s of COPY, ANALYZE included")
        say(f"{stage:,} results; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        for name, timing in measure(fleet, options.samples, options.only).items():
            times.setdefault(name, []).append(timing)
        report(times, stages)
    if options.export:
        export()
    return verdict(times)


def say(text: str) -> None:
    print(text, flush=True)


class Fleet:
    """Ids of what the results hang on."""

    def __init__(self, deployments: list[int], slugs: list[str]) -> None:
        self.deployments, self.slugs = deployments, slugs

    @classmethod
    def found(cls) -> Fleet | None:
        from kvaudit.fleet.models import Deployment

        rows = list(Deployment.objects.order_by("pk").values_list("pk", "slug"))
        return cls([pk for pk, _ in rows], [slug for _, slug in rows]) if rows else None

    @classmethod
    def made(cls) -> Fleet:
        from kvaudit.audits.models import Plan
        from kvaudit.fleet.models import Deployment, Node
        from tests.factories import a_team, an_admin
        from tests.web import scene

        an_admin("admin")
        teams = [a_team(f"team-{number:02d}") for number in range(20)]
        deployments = []
        for number in range(DEPLOYMENTS):
            deployments.append(scene.a_pair(f"chat-{number:03d}", team=teams[number % len(teams)]))
            for extra in range(NODES - 2):
                node = Node.objects.create(
                    deployment=deployments[-1],
                    name=f"decode-{extra + 1}",
                    role="decode",
                    url="http://127.0.0.1:9/",
                )
                scene.a_snapshot(node)
        Node.objects.update(valid_from=datetime.now(UTC) - timedelta(days=900))
        plan = Plan.objects.create(name="hourly", kind="passive", checks=list(CHECKS), interval=3_600)
        plan.deployments.set(deployments)
        return cls(
            list(Deployment.objects.order_by("pk").values_list("pk", flat=True)),
            [d.slug for d in deployments],
        )


def fill(fleet: Fleet, there: int, wanted: int) -> None:
    """Results number ``there`` to ``wanted``, counted from the newest one backwards, and their runs and states."""
    from django.db import connection

    newest = _newest()
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # foreign keys are right by construction
        _copy(cursor, "audits_run", RUN_COLUMNS, _runs(fleet, there, wanted, newest))
        _copy(cursor, "audits_result", RESULT_COLUMNS, _results(fleet, there, wanted, newest))
        _copy(cursor, "audits_checkstate", STATE_COLUMNS, _states(fleet, there, wanted, newest))
        _copy(cursor, "audits_statechange", CHANGE_COLUMNS, _changes(fleet, there, wanted, newest))
        cursor.execute("SET session_replication_role = DEFAULT")
        for table in ("audits_run", "audits_result", "audits_checkstate", "audits_statechange"):
            cursor.execute(f"VACUUM (ANALYZE) {table}")
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {LARGEST_ID + 1})")


RUN_COLUMNS = (
    "id, kind, trigger, checks, slot, slots, state, verdict, warn, summary, fingerprint, tokens_spent, "
    "replayed_lengths, progress, not_before, expires_at, rings, attempt, created_at, started_at, finished_at, "
    "deployment_id, plan_id"
)
RESULT_COLUMNS = (
    "id, attempt, check_id, verdict, warn, severity, summary, measures, next_step, does_not_prove, evidence, "
    "observed_at, deployment_id, run_id"
)
STATE_COLUMNS = (
    "id, check_id, verdict, warn, severity, summary, since, last_confirmed, expires_at, expired_by, expiry_noted, "
    "closed_at, interval, fingerprint, deployment_id, run_id, result_id"
)
CHANGE_COLUMNS = "id, at, what, check_id, before, after, summary, detail, deployment_id, run_id"


def _newest() -> datetime:
    """When the newest result was observed: the same for every stage."""
    from kvaudit.audits.models import Result

    found = Result.objects.order_by("-id").values_list("observed_at", flat=True).first()
    return found or datetime.now(UTC) - timedelta(minutes=5)


def _copy(cursor: Any, table: str, columns: str, lines: Iterator[str]) -> None:
    with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
        part: list[str] = []
        for line in lines:
            part.append(line)
            if len(part) == 5_000:
                copy.write("".join(part))
                part.clear()
        copy.write("".join(part))


def _span(there: int, wanted: int) -> range:
    """Positions from the oldest to the newest of a stage; position p has the id LARGEST_ID - p."""
    return range(wanted - 1, there - 1, -1)


def _place(fleet: Fleet, position: int) -> tuple[int, int, str]:
    """Run id, deployment id and check of a position. A round of the fleet takes one run of each deployment."""
    run = position // PER_RUN
    deployment = fleet.deployments[run % len(fleet.deployments)]
    half = (run // len(fleet.deployments)) % 2
    return LARGEST_ID - run, deployment, CHECKS[half * PER_RUN + position % PER_RUN]


def _at(newest: datetime, position: int) -> str:
    return (newest - timedelta(seconds=86_400 / RESULTS_A_DAY * position)).isoformat()


def _verdict(position: int) -> str:
    """Mostly pass; the same for a while, as states are."""
    draw = hash((position // 2_000 // PER_RUN, position // 977)) % 1_000
    return "pass" if draw < 985 else "fail" if draw < 992 else "inconclusive" if draw < 997 else "error"


def _runs(fleet: Fleet, there: int, wanted: int, newest: datetime) -> Iterator[str]:
    checks = ("{" + ",".join(CHECKS[:PER_RUN]) + "}", "{" + ",".join(CHECKS[PER_RUN:]) + "}")
    for position in _span(there, wanted):
        if position % PER_RUN:
            continue
        run, deployment, _ = _place(fleet, position)
        at = _at(newest, position)
        half = (position // PER_RUN // len(fleet.deployments)) % 2
        trigger = "manual" if position % 9_973 == 0 else "schedule"
        yield (
            f"{run}\tpassive\t{trigger}\t{checks[half]}\t\\N\t1\tfinished\t{_verdict(position)}\tf\t"
            f"4 of 4 checks concluded.\t{'ab' * 32}\t0\t{{}}\t{{}}\t{at}\t{at}\t0\t1\t{at}\t{at}\t{at}\t"
            f"{deployment}\t1\n"
        )


def _results(fleet: Fleet, there: int, wanted: int, newest: datetime) -> Iterator[str]:
    for position in _span(there, wanted):
        run, deployment, check = _place(fleet, position)
        said = _verdict(position)
        yield (
            f"{LARGEST_ID - position}\t1\t{check}\t{said}\tf\t{'critical' if said == 'fail' else ''}\t"
            f"{SUMMARIES[said]}\t{MEASURES}\t\t{BEFORE}\t{EVIDENCE}\t{_at(newest, position)}\t{deployment}\t{run}\n"
        )


def _states(fleet: Fleet, there: int, wanted: int, newest: datetime) -> Iterator[str]:
    """One interval per ``STATE_EVERY`` results of a deployment's check; the newest is open."""
    round_ = PER_RUN * len(fleet.deployments)
    for position in _span(there, wanted):
        rounds = position // round_  # how many rounds of the fleet ago; a check has every second
        if rounds // 2 % STATE_EVERY:
            continue
        run, deployment, check = _place(fleet, position)
        newest_of_check = rounds < 2
        since, confirmed = _at(newest, position), _at(newest, max(0, position - round_ * (STATE_EVERY - 1)))
        if newest_of_check:
            since, confirmed = since, since
        closed = "\\N" if newest_of_check else confirmed
        expires = (newest + timedelta(days=7)).isoformat() if newest_of_check else confirmed
        said = _verdict(position)
        yield (
            f"{LARGEST_ID - position}\t{check}\t{said}\tf\t{'critical' if said == 'fail' else ''}\t{SUMMARIES[said]}\t"
            f"{since}\t{confirmed}\t{expires}\t\tf\t{closed}\t3600\t{'ab' * 32}\t{deployment}\t{run}\t"
            f"{LARGEST_ID - position}\n"
        )


def _changes(fleet: Fleet, there: int, wanted: int, newest: datetime) -> Iterator[str]:
    round_ = PER_RUN * len(fleet.deployments)
    for position in _span(there, wanted):
        if position // round_ // 2 % STATE_EVERY:
            continue
        run, deployment, check = _place(fleet, position)
        said = _verdict(position)
        yield (
            f"{LARGEST_ID - position}\t{_at(newest, position)}\tverdict\t{check}\tpass\t{said}\t{SUMMARIES[said]}\t"
            f"{{}}\t{deployment}\t{run}\n"
        )


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


def pages(fleet: Fleet) -> dict[str, Callable[[], str]]:
    """Name -> a function that gives an address, another one each time."""
    draw = random.Random(5)

    def slug() -> str:
        return draw.choice(fleet.slugs)

    def run() -> int:
        return LARGEST_ID - draw.randrange(20_000)

    def back(days: int) -> str:
        return f"{_newest() - timedelta(days=days):%Y-%m-%d}"

    def key() -> int:
        return LARGEST_ID - draw.randrange(90_000)

    return {
        "fleet": lambda: "/",
        "fleet filtered": lambda: "/?verdict=fail&sort=audited",
        "compliance": lambda: "/compliance/",
        "compliance as of a week ago": lambda: f"/compliance/?as_of={back(2)}",
        "summary": lambda: "/summary/",
        "plans": lambda: "/plans/",
        "waivers": lambda: "/waivers/",
        "incidents": lambda: "/incidents/",
        "deployment": lambda: f"/d/{slug()}/",
        "deployment events": lambda: f"/d/{slug()}/events/",
        "timeline figure": lambda: f"/d/{slug()}/figures/timeline/",
        "exposure, 30 days": lambda: f"/d/{slug()}/exposure/",
        "exposure, a year": lambda: f"/d/{slug()}/exposure/?from={back(365)}",
        "run": lambda: f"/runs/{run()}/",
        "compare": lambda: f"/compare/?a={run()}&b={run()}",
        "history": lambda: "/history/",
        "history, further back": lambda: f"/history/?before={key()}",
        "history, deployment": lambda: f"/history/?deployment={slug()}",
        "history, deployment and check": lambda: f"/history/?deployment={slug()}&check=pool",
        "history, deployments by a part of the name": lambda: "/history/?deployment=chat-1",
        "history, verdict": lambda: "/history/?verdict=fail",
        "history, check and verdict": lambda: "/history/?check=canary&verdict=error",
        "history, trigger": lambda: "/history/?trigger=manual",
        "history, engine and version": lambda: "/history/?engine=sglang&version=0.5.22",
        "history, days": lambda: f"/history/?since={back(3)}&until={back(2)}",
        "history, no match: check": lambda: "/history/?check=session",
        "history, no match: trigger": lambda: "/history/?trigger=drift",
        "history, no match: actor": lambda: "/history/?actor=admin",
        "history, no match: version": lambda: "/history/?version=9.9",
        "history, no match: deployment and check": lambda: f"/history/?deployment={slug()}&check=session",
        "history, no match: deployment and verdict": lambda: (
            f"/history/?deployment={slug()}&verdict=error&trigger=retry"
        ),
        "history, no match: everything at once": lambda: (
            f"/history/?check=pool&verdict=error&engine=vllm&trigger=drift&since={back(300)}&until={back(1)}"
        ),
    }


def measure(fleet: Fleet, samples: int, only: str) -> dict[str, Timing]:
    from django.core import signals
    from django.db import close_old_connections, connection
    from django.test import Client

    from kvaudit.accounts.models import User
    from kvaudit.ops import gunicorn_conf

    client = Client(raise_request_exception=False)
    client.force_login(User.objects.get(username="admin"))
    # One connection throughout, so that its backend's time can be read.
    signals.request_started.disconnect(close_old_connections)
    signals.request_finished.disconnect(close_old_connections)
    connection.ensure_connection()
    backend = connection.connection.info.backend_pid
    client.get("/")
    gunicorn_conf.when_ready(None)  # as the server does it
    found = {}
    for name, address in pages(fleet).items():
        if only not in name:
            continue
        timing = Timing()
        for sample in range(samples + 2):
            asked: list[str] = []

            def noted(execute: Any, sql: Any, *rest: Any, asked: list[str] = asked) -> Any:
                asked.append(sql)
                return execute(sql, *rest)

            path = address()
            before = _ran(os.getpid()) + _ran(backend)
            start = time.perf_counter()
            with connection.execute_wrapper(noted):
                answer = client.get(path)
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


def verdict(times: dict[str, list[Timing]]) -> int:
    slow = [name for name, timings in times.items() if any(each.p(0.95) > PROMISE_MS for each in timings)]
    grown = [
        name
        for name, timings in times.items()
        if len(timings) > 1 and timings[-1].p(0.95) > max(PROMISE_RATIO * timings[0].p(0.95), 20)
    ]
    say(f"p95 above {PROMISE_MS:.0f} ms: {', '.join(slow) or 'none'}")
    say(f"more than {PROMISE_RATIO} x from the smallest to the largest stage: {', '.join(grown) or 'none'}")
    return 1 if slow or grown else 0


if __name__ == "__main__":
    if shutil.disk_usage(tempfile.gettempdir()).free < 30e9:
        say("less than 30 GB are free: ten million results take about 20")
    sys.exit(main())
