"""Writes to the ledger; `record` and `record_all` are the only way in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.ledger.chain import entry_hash
from kvaudit.server.ledger.models import Entry

# In their order: rows of one INSERT get their numbers as they come.
_APPEND = """
    INSERT INTO ledger_entry (actor, kind, subject, digest)
    SELECT actor, kind, subject, digest
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[])
        WITH ORDINALITY AS act (actor, kind, subject, digest, number)
    ORDER BY number
    RETURNING sequence, at, actor, kind, subject, digest, previous, hash
"""
_COLUMNS = ("sequence", "at", "actor", "kind", "subject", "digest", "previous", "hash")
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?\Z")


@dataclass(frozen=True, slots=True)
class Act:
    """What an entry says besides who and when."""

    kind: str
    subject: str
    digest: str = ""


def record(*, actor: Actor, kind: str, subject: str, digest: str = "") -> Entry:
    """Append one entry in the caller's transaction.

    Entries are chained, so the end of the chain is locked until that transaction ends: call this
    **last**, after every other lock of the transaction has been taken. ``digest`` is a SHA-256 in
    hex or "" (`kvaudit.server.ledger.chain.digest_of`). Raises ValueError for fields that do not fit.
    """
    return record_all(actor=actor, acts=[Act(kind, subject, digest)])[0]


def record_all(*, actor: Actor, acts: Iterable[Act]) -> list[Entry]:
    """`record` for several acts of one actor under one lock and one INSERT. The database gives each its number, its
    time and its hash (migration 0005), and takes the lock."""
    name = actor_name(actor)
    wanted = [_checked(name, act) for act in acts]
    if not wanted:
        return []
    columns = [[name] * len(wanted)]
    columns += [[getattr(act, column) for act in wanted] for column in ("kind", "subject", "digest")]
    with connection.cursor() as cursor:
        cursor.execute(_APPEND, columns)
        rows = cursor.fetchall()
    entries = [Entry.from_db(connection.alias, _COLUMNS, row) for row in rows]
    return sorted(entries, key=lambda entry: entry.sequence)


def hash_of(entry: Entry) -> str:
    """What the entry's ``hash`` must be."""
    return entry_hash(
        sequence=entry.sequence,
        at=entry.at,
        actor=entry.actor,
        kind=entry.kind,
        subject=entry.subject,
        digest=entry.digest,
        previous=entry.previous,
    )


def _checked(actor: str, act: Act) -> Act:
    for value, name, most in ((actor, "actor", 200), (act.kind, "kind", 100), (act.subject, "subject", 300)):
        if not value or len(value) > most or "\x00" in value:
            raise ValueError(f"a ledger entry needs a {name} of 1 to {most} characters, not {value!r}")
    if not _DIGEST.match(act.digest):
        raise ValueError(f"a ledger digest is a SHA-256 in hex or empty, not {act.digest!r}")
    return act
