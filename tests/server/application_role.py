"""The database role of the application, in tests whose connection is the owner's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import psycopg

ROLE = f"kvaudit_tests_{os.getpid()}"
_databases: set[str] = set()


@contextlib.contextmanager
def as_the_application() -> Iterator[None]:
    """Privileges of `kvaudit.server.ledger.tables`, as in production. Past Django's cursors: who counts queries
    counts those of the page."""
    from django.db import connection

    if connection.connection is None:  # a test without a database
        yield
        return
    _make_role(connection)
    connection.connection.execute(f"SET ROLE {ROLE}")
    try:
        yield
    finally:
        if connection.connection is not None and not connection.needs_rollback:
            connection.connection.execute("RESET ROLE")


def _make_role(connection: Any) -> None:
    """Once for a database, outside the test's transaction."""
    from kvaudit.server.ledger.grants import grant_statements

    given = connection.get_connection_params()
    if given["dbname"] in _databases:
        return
    with psycopg.connect(host=given["host"], user=given["user"], dbname=given["dbname"]) as owner:
        owner.execute(f"CREATE ROLE {ROLE}".encode())
        for statement in grant_statements(ROLE):
            owner.execute(statement.encode())
    _databases.add(given["dbname"])
