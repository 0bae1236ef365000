"""Makes a backup: one snapshot of the database, dumped, counted and named. Django is set up, the owner connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from kvaudit.server.ops.backup import archive, inventory, keys, pg_tools
from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.backup.manifest import Manifest
from kvaudit.server.ops.backup.reached import Reached

LOCK_WAIT_MS = 60_000
"""How long a table may be locked by a migration before the dump gives up."""


def make(database: Reached, path: Path, say: Callable[[str], None]) -> Manifest:
    """Write the backup. Raises `BackupFault`, OSError."""
    with database.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}".encode())
        if "ledger_entry" not in inventory.tables(connection):
            raise BackupFault(f"The database {database.name} holds no kvaudit: there is nothing to back up.")
        try:
            manifest, snapshot = _described(connection)
        except psycopg.errors.LockNotAvailable:
            raise BackupFault(
                "The database is busy: a table was locked for a minute. Try again later."
            ) from None
        tool = pg_tools.find("pg_dump", manifest.server_version, database.tools)
        conninfo, env = database.for_tools()
        arguments = ["--format=custom", f"--snapshot={snapshot}", f"--lock-wait-timeout={LOCK_WAIT_MS}"]
        arguments += [f"--dbname={conninfo}"]
        say(f"dumping {sum(manifest.counts.values())} rows with {tool.path} ({tool.major})")
        described = replace(manifest, tool_version=tool.major)
        return archive.write(path, described, lambda take: pg_tools.dump(tool, arguments, env, take))


def _described(connection: psycopg.Connection[Any]) -> tuple[Manifest, str]:
    """What the snapshot holds, and its name."""
    snapshot, now, size, server = connection.execute(
        "SELECT pg_export_snapshot(), now(), pg_database_size(current_database()),"
        " current_setting('server_version_num')::int / 10000"
    ).fetchone() or ("", None, 0, 0)
    assert now is not None
    ran = inventory.migrations(connection)
    head = inventory.head(connection)
    known, all_of_code = inventory.known_migrations()
    same_schema = set(ran) <= known and all_of_code <= set(ran)
    manifest = Manifest(
        made_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        product=version("kvaudit"),
        server_version=server,
        tool_version=0,
        migrations=ran,
        head={"sequence": head.sequence, "hash": head.hash, "at": head.at},
        counts=inventory.counts(connection),
        sealed=inventory.sealed(connection, keys.key_id) if same_schema else None,
        keys=keys.ids(),
        database_bytes=size,
    )
    return manifest, str(snapshot)
