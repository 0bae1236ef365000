"""Streams every result that matches: one repeatable-read snapshot, a server-side cursor, flat memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from kvaudit.server.audits.state.builds import Builds
from kvaudit.server.audits.state.history_query import Question, bounds, condition

AT_ONCE = 2_000
"""Rows held in memory."""


class ExportedResult(NamedTuple):
    """One result as an export carries it. ``measures`` and ``evidence`` are JSON texts."""

    id: int
    observed_at: datetime
    deployment: str
    team: str
    check: str
    verdict: str
    warn: bool
    severity: str
    summary: str
    run: int
    attempt: int
    kind: str
    trigger: str
    actor: str
    plan: str
    builds: str
    fingerprint: str
    next_step: str
    does_not_prove: str
    measures: str
    evidence: str


_COLUMNS = """
r.id, r.observed_at, d.slug, t.slug, r.check_id, r.verdict, r.warn, r.severity, r.summary, r.run_id, r.attempt,
run.kind, run.trigger, coalesce(u.username, ''), coalesce(p.name, ''), r.deployment_id, run.fingerprint,
r.next_step, r.does_not_prove, r.measures::text, r.evidence::text
"""
_TABLES = """
audits_result r JOIN audits_run run ON run.id = r.run_id JOIN fleet_deployment d ON d.id = r.deployment_id
JOIN accounts_team t ON t.id = d.team_id LEFT JOIN audits_plan p ON p.id = run.plan_id
LEFT JOIN accounts_user u ON u.id = run.actor_id
"""


def exported_results(asked: Question) -> Iterator[ExportedResult]:
    """Newest first. A connection of its own: what streams for minutes must neither see half of a change nor
    hold the request's transaction. Closing the iterator ends the query."""
    if asked.hopeless:
        return
    lowest, top = bounds(asked)
    with _snapshot() as own:
        builds = Builds.of(asked.deployments, own)
        wanted = condition(asked, builds)
        with own.chunked_cursor() as cursor:
            cursor.execute(
                f"SELECT {_COLUMNS} FROM {_TABLES} WHERE r.id >= %(lowest)s AND r.id < %(top)s AND {wanted.sql} "  # noqa: S608
                "ORDER BY r.id DESC",
                {**wanted.values, "lowest": lowest, "top": top},
            )
            while rows := cursor.fetchmany(AT_ONCE):
                for row in rows:
                    yield _exported_result(row, builds)


def _exported_result(row: tuple[Any, ...], builds: Builds) -> ExportedResult:
    return ExportedResult._make((*row[:15], builds.at(row[15], row[1]), *row[16:]))


@contextmanager
def _snapshot() -> Iterator[BaseDatabaseWrapper]:
    """A second connection inside a read-only repeatable-read transaction."""
    own = connection.copy()
    try:
        own.ensure_connection()
        assert own.connection is not None
        own.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        own.connection.read_only = True
        own.set_autocommit(False)
        yield own
    finally:
        if own.connection is not None:
            own.rollback()
        own.close()
