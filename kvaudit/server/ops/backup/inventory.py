"""Counts what is in a database, over a connection of its own: the dump's own snapshot. Django is set up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from kvaudit.server.accounts.sealed_fields import SealedField, sealed_columns
from kvaudit.server.accounts.sealing import Place, opening_key
from kvaudit.server.ledger.noted_head import Head
from kvaudit.server.ops.backup.manifest import NO_KEY, TENANT_KEYS

Connection = psycopg.Connection[Any]


def tables(connection: Connection) -> list[str]:
    """All of the schema, in order."""
    rows = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    ).fetchall()
    return [str(row[0]) for row in rows]


def counts(connection: Connection) -> dict[str, int]:
    """Rows of every table."""
    return {name: _one(connection, sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name)))
            for name in tables(connection)}  # fmt: skip


def migrations(connection: Connection) -> list[str]:
    """ "app.name" of those that ran, in order of name; none where there is no such table."""
    if "django_migrations" not in tables(connection):
        return []
    rows = connection.execute("SELECT app, name FROM django_migrations ORDER BY 1, 2").fetchall()
    return [f"{app}.{name}" for app, name in rows]


def known_migrations() -> tuple[set[str], set[str]]:
    """Those of the code, and among them those that stand for the code's whole schema."""
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(None, ignore_no_migrations=True)
    every = {f"{app}.{name}" for app, name in loader.disk_migrations}
    replaced = {
        f"{app}.{name}"
        for each in loader.disk_migrations.values()
        for app, name in getattr(each, "replaces", ())
    }
    return every | replaced, {f"{app}.{name}" for app, name in loader.graph.nodes}


def head(connection: Connection) -> Head:
    """The last entry of the ledger."""
    row = connection.execute(
        "SELECT sequence, hash, at FROM ledger_entry ORDER BY sequence DESC LIMIT 1"
    ).fetchone()
    return Head(int(row[0]), str(row[1]), row[2].isoformat()) if row else Head(0)


def sealed(connection: Connection, named: Callable[[str], str] = str) -> dict[str, dict[str, int]]:
    """Column -> ``named(key)`` -> how many stored secrets that key opens; "" for those that none does. One row in
    memory at a time."""
    found = {}
    for model, field in sealed_columns():
        opened: Counter[str] = Counter()
        for place, text in _stored(connection, model, field):
            key = opening_key(text, place)
            opened[named(key) if key else NO_KEY] += 1
        found[f"{model._meta.db_table}.{field.column}"] = dict(opened)
    return found


def closed(found: dict[str, dict[str, int]]) -> tuple[int, int]:
    """(tenants whose credentials no key opens, other secrets that none does)"""
    none = {column: opened.get(NO_KEY, 0) for column, opened in found.items()}
    tenants = none.pop(TENANT_KEYS, 0)
    return tenants, sum(none.values())


def _stored(connection: Connection, model: Any, field: SealedField) -> Any:
    table, column = sql.Identifier(model._meta.db_table), sql.Identifier(str(field.column))
    columns = {each.attname: str(each.column) for each in model._meta.fields}
    row = [sql.Identifier(columns[name]) for name in field.row]
    query = sql.SQL("SELECT {}, {} FROM {} WHERE {} <> ''").format(
        column, sql.SQL(", ").join(row), table, column
    )
    with connection.cursor(name="kvaudit_sealed") as cursor:
        for text, *identity in cursor.execute(query):
            yield Place(model._meta.db_table, field.name, tuple(identity)), text


def _one(connection: Connection, query: sql.Composed) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0
