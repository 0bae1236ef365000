"""Restores a backup into a database beside the one in use, proves it there, and lets it take that one's place.

Until the last step, one transaction that renames two databases, nothing of the database in use is touched; what a
broken restore leaves is dropped. Django is set up and aims at the database beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
from django.conf import settings
from django.db import connections
from psycopg import sql

from kvaudit.server.accounts.models import Session
from kvaudit.server.ledger import noted_head
from kvaudit.server.ledger.chain_check import verify_chain, verify_record
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.noted_head import Head
from kvaudit.server.ledger.services import record
from kvaudit.server.ops.backup import inventory, keys, pg_tools
from kvaudit.server.ops.backup.archive import Archive
from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.backup.manifest import TENANT_KEYS, Manifest
from kvaudit.server.ops.backup.reached import Reached, beside, room_for
from kvaudit.server.ops.initialise import note_rollback, prepared

ACTOR = "command:restore"
MAINTENANCE = "postgres"


@dataclass(slots=True)
class Restored:
    """``opened`` and ``closed``: credentials of tenants; ``lost``: the head that was known and is not in the backup."""

    head: Head
    opened: int = 0
    closed: int = 0
    others_closed: int = 0
    lost: Head | None = None
    kept: str = ""  # the former database, under its new name


def restore(
    database: Reached,
    archive: Archive,
    *,
    replace: bool,
    without_keys: bool,
    head_file: str,
    say: Callable[[str], None],
) -> Restored:
    """All of it. Raises `BackupFault`."""
    manifest = archive.manifest
    _fits(database, manifest, without_keys)
    former = _former(database, replace)
    known = _known_heads(database, former, head_file)
    tool = pg_tools.find("pg_restore", max(_server_version(database), manifest.tool_version), database.tools)
    with _database_beside(database) as staging:
        say(f"restoring {sum(manifest.counts.values())} rows beside the database in use")
        conninfo, env = database.for_tools(staging)
        arguments = ["--exit-on-error", "--no-owner", "--no-privileges", f"--dbname={conninfo}"]
        with archive.dump() as pieces:
            pg_tools.restore(tool, arguments, env, pieces)
        _compare_counts(database, staging, manifest)
        with prepared(0, say):
            found = _proved(manifest)
            say(f"ledger verified: {found.head.sequence} entries")
            found.lost = max(
                (head for head in known if not _is_there(head)), key=lambda head: head.sequence, default=None
            )
            Session.objects.all().delete()  # who was logged in then is not now
            record(
                actor=ACTOR,
                kind="database.restored",
                subject=f"backup:{manifest.made_at}",
                digest=manifest.sha256,
            )
            if found.lost:
                note_rollback(found.lost, ACTOR)
            new_head = noted_head.current()
        with database.connect(staging) as connection:
            opened = inventory.sealed(connection)
        found.closed, found.others_closed = inventory.closed(opened)
        found.opened = _tenants(opened) - found.closed
        if (found.closed or found.others_closed) and not without_keys and not _were_closed(manifest, found):
            raise BackupFault(
                f"Nothing was changed: the credentials of {found.closed} tenants and {found.others_closed} other "
                "secrets do not open with your ENCRYPTION_KEYS. Give the keys (--keys), or --without-keys."
            )
        found.kept = _swap(database, staging, keep=bool(former))
    if head_file:
        settings.LEDGER_HEAD_FILE = head_file
        try:
            noted_head.write(new_head)
        except OSError as error:
            raise BackupFault(
                f"The database is restored, but the ledger's head could not be noted in {head_file} "
                f"({error.strerror}): the next start needs --accept-rollback."
            ) from None
    return found


def _fits(database: Reached, manifest: Manifest, without_keys: bool) -> None:
    known, _ = inventory.known_migrations()
    if newer := manifest.newer_than(known):
        raise BackupFault(
            f"The backup's schema is newer than this release ({', '.join(newer[:3])}{' ...' if newer[3:] else ''}): it "
            f"was made by kvaudit {manifest.product}. Install that release or a later one, then restore."
        )
    if (missing := manifest.missing_keys(keys.ids()["ENCRYPTION_KEYS"])) and not without_keys:
        raise BackupFault(
            f"{missing} Give the file that kvaudit backup --keys-to wrote (--keys FILE) or set the key; --without-keys "
            "restores all the same, and those secrets are to be entered again."
        )
    if (version := _server_version(database)) < manifest.server_version:
        raise BackupFault(
            f"The backup was made of PostgreSQL {manifest.server_version}, and this server is {version}: restore into "
            f"PostgreSQL {manifest.server_version} or newer."
        )
    if database.embedded and database.state:
        room_for(database.state.folder, manifest.database_bytes, "the restored database")


def _server_version(database: Reached) -> int:
    with database.connect(MAINTENANCE) as connection:
        return connection.info.server_version // 10_000


def _former(database: Reached, replace: bool) -> dict[str, int]:
    """Rows of the database in use by table, {} for an empty one. Raises `BackupFault` when it may not be replaced."""
    with database.connect(MAINTENANCE) as connection:
        others = connection.execute(
            "SELECT usename, count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
            " GROUP BY 1 ORDER BY 1", [database.name],
        ).fetchall()  # fmt: skip
    if others:
        who = " and ".join(f"{count} of {role}" for role, count in others)
        raise BackupFault(
            f"The database is in use (sessions: {who}): stop web, workers, beat and retention first, then restore."
        )
    with database.connect() as connection:
        rows = inventory.counts(connection)
    if rows and not replace:
        raise BackupFault(
            f"The database {database.name} is not empty ({rows.get('fleet_deployment', 0)} deployments, "
            f"{rows.get('ledger_entry', 0)} entries in the ledger): with --replace the backup takes its place, and it "
            "stays on the server under another name."
        )
    return rows


def _known_heads(database: Reached, former: dict[str, int], head_file: str) -> list[Head]:
    """What was known of the ledger before: the head outside the database, and that of the database in use."""
    settings.LEDGER_HEAD_FILE = head_file
    try:
        noted = noted_head.read()
    except noted_head.HeadUnreadable as fault:
        raise BackupFault(str(fault)) from None
    finally:
        settings.LEDGER_HEAD_FILE = (
            ""  # until it is proved, the database beside is compared with its manifest alone
        )
    last = None
    if "ledger_entry" in former:
        with database.connect() as connection:
            last = inventory.head(connection)
    return [head for head in (noted, last) if head and head.sequence]


@contextmanager
def _database_beside(database: Reached) -> Iterator[str]:
    name = beside(database.name)
    _drop(database, name)
    try:
        with database.connect(MAINTENANCE, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    except psycopg.errors.InsufficientPrivilege:
        raise BackupFault(
            "The owner may not make a database to restore into: give the role of DATABASE_OWNER_URL CREATEDB "
            "(ALTER ROLE ... CREATEDB), for the restore at least."
        ) from None
    try:
        yield name
    except psycopg.errors.DiskFull as error:
        raise BackupFault(f"The disk of the database is full, so nothing was restored: {error}") from None
    finally:
        connections.close_all()
        with suppress(BackupFault, psycopg.Error):  # what stopped us is what has to be told
            _drop(database, name)


def _drop(database: Reached, name: str) -> None:
    try:
        with database.connect(MAINTENANCE, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))
    except psycopg.errors.ObjectInUse:
        raise BackupFault(f"Another restore is under way: the database {name} is in use.") from None


def _compare_counts(database: Reached, staging: str, manifest: Manifest) -> None:
    with database.connect(staging) as connection:
        found = inventory.counts(connection)
    if found != manifest.counts:
        table = min(
            name for name in {*found, *manifest.counts} if found.get(name) != manifest.counts.get(name)
        )
        raise BackupFault(
            f"Nothing was changed: {table} came out with {found.get(table, 0)} rows, and the manifest says "
            f"{manifest.counts.get(table, 0)}."
        )


def _proved(manifest: Manifest) -> Restored:
    head = noted_head.current()
    entries = Entry.objects.order_by("sequence").iterator(chunk_size=5000)
    noted = {manifest.head_sequence: manifest.head_hash} if manifest.head_sequence else {}
    found = verify_record(lambda walked: verify_chain(walked, noted), entries)
    if found.problem:
        raise BackupFault(
            f"Nothing was changed: the ledger of the backup is broken. {found.problem} {found.intact}"
        )
    return Restored(head)


def _is_there(head: Head) -> bool:
    return Entry.objects.filter(sequence=head.sequence, hash=head.hash).exists()


def _tenants(opened: dict[str, dict[str, int]]) -> int:
    return sum(opened.get(TENANT_KEYS, {}).values())


def _were_closed(manifest: Manifest, found: Restored) -> bool:
    """What did not open when the backup was made need not open now."""
    if manifest.sealed is None:
        return False
    then = inventory.closed({column: dict(opened) for column, opened in manifest.sealed.items()})
    return found.closed <= then[0] and found.others_closed <= then[1]


def _swap(database: Reached, staging: str, *, keep: bool) -> str:
    """Raises `BackupFault` when somebody has opened the database meanwhile. Gives the former one's new name."""
    connections.close_all()
    aside = f"{database.name[:40]}_before_{datetime.now(UTC):%Y%m%d%H%M%S}"
    rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
    try:
        with database.connect(MAINTENANCE) as connection:
            connection.execute(rename.format(sql.Identifier(database.name), sql.Identifier(aside)))
            connection.execute(rename.format(sql.Identifier(staging), sql.Identifier(database.name)))
    except psycopg.errors.ObjectInUse as error:
        raise BackupFault(
            f"Nothing was changed: somebody has opened the database meanwhile ({str(error).strip()}). Stop web, "
            "workers, beat and retention, then restore again."
        ) from None
    if not keep:
        with suppress(psycopg.Error, BackupFault):
            _drop(database, aside)
    return aside if keep else ""
