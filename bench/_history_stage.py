"""A stage of the page benchmark: its database, and a client that asks pages of it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLEET = "kvaudit"


def make(rows: int, say: Callable[[str], None]) -> None:
    """The database of a stage, unless it is there: a copy of one that holds the fleet alone, filled."""
    import _history_people as people
    import _history_rows
    from django.core.management import call_command
    from django.db import connection

    _connect(FLEET)
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM fleet_deployment LIMIT 1")
        if not cursor.fetchone():
            _history_rows.make_fleet()
    _connect("postgres")
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        if (name := _name(rows)) not in {row[0] for row in cursor.fetchall()}:
            half_made = f"{name}_half_made"
            cursor.execute(f"DROP DATABASE IF EXISTS {half_made}")
            cursor.execute(f"CREATE DATABASE {half_made} TEMPLATE {FLEET}")
            _connect(half_made)
            began = time.monotonic()
            _history_rows.fill(rows)
            say(
                f"{rows:,} results after {time.monotonic() - began:.0f} s of COPY, VACUUM and ANALYZE included"
            )
            _connect("postgres")
            with connection.cursor() as renaming:
                renaming.execute(f"ALTER DATABASE {half_made} RENAME TO {name}")
    _connect(name)
    call_command("migrate", verbosity=0)
    people.furnish()
    _history_rows.fill_ledger(rows)


def _name(rows: int) -> str:
    return f"{FLEET}_{rows}"


def _connect(database: str) -> None:
    from django.db import connection

    connection.close()
    connection.settings_dict["NAME"] = database


class Timing:
    """Milliseconds of each request, and the number of its queries."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.busy: list[float] = []  # processor time of this process and of its database backend
        self.queries = 0
        self.status = 200

    def p(self, share: float, wall: bool = False) -> float:
        """Of processor time: what a request takes on a machine that is not busy with others."""
        ordered = sorted(self.wall if wall else self.busy)
        return ordered[math.ceil(share * len(ordered)) - 1]


class Stage:
    """Stages are asked in turn, so that whatever else the machine does weighs on all of them."""

    def __init__(self, rows: int) -> None:
        from _history_pages import pages
        from django.db import connection
        from django.test import Client

        from kvaudit.server.accounts.models import User
        from kvaudit.server.accounts.tokens import create_token

        self.rows = rows
        self.connection = connection.copy()
        self.connection.settings_dict["NAME"] = _name(rows)
        self.use()
        self.client = Client(raise_request_exception=False)
        admin = User.objects.get(username="admin")
        self.client.force_login(admin)
        _, secret = create_token(owner=admin, name="bench", scopes=["read"], actor=admin)
        self.bearer = {"Authorization": f"Bearer {secret}"}
        self.pages = pages()
        self.timings: dict[str, Timing] = {}
        # One connection throughout, so that its backend's time can be read.
        self.backend = self.connection.connection.info.backend_pid

    def use(self) -> None:
        """Everything asks this database from now on."""
        from django.db import connections

        connections["default"] = self.connection

    def ask(self, name: str, *, count: bool) -> None:
        """The page once; ``count`` is false while templates and caches warm."""
        place, address = self.pages[name]
        asked: list[str] = []

        def noted(execute: Any, sql: Any, *rest: Any) -> Any:
            asked.append(sql)
            return execute(sql, *rest)

        self.use()
        path, headers = address(), self.bearer if place.startswith("api:") else {}
        before = _ran(os.getpid()) + _ran(self.backend)
        start = time.perf_counter()
        with self.connection.execute_wrapper(noted):
            answer = self.client.get(path, headers=headers)
        wall = (time.perf_counter() - start) * 1_000
        timing = self.timings.setdefault(name, Timing())
        timing.status = max(timing.status, answer.status_code)
        if count:
            timing.wall.append(wall)
            timing.busy.append(_ran(os.getpid()) + _ran(self.backend) - before)
            timing.queries = max(timing.queries, len(asked))


def _ran(pid: int) -> float:
    """Milliseconds that a process has spent on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
