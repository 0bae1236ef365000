"""Grants database roles what they may do: the application's, and that of retention. Tables:
`kvaudit.server.ledger.tables`."""

from __future__ import annotations

import re

from kvaudit.server.ledger.tables import TABLES

RETENTION_READS = ("audits", "checklists", "incidents", "ledger")
"""Apps whose tables say what still rests on evidence; no credentials, no accounts."""


def grant_statements(role: str) -> list[str]:
    """SQL for the owner to run after every migration, in order and in one transaction.

    ``role`` is a plain PostgreSQL role name; raises ValueError for anything that would need
    quoting. Tables of the record keep what their policy says; migrations stay the owner's.
    """
    _check(role)
    statements = [
        *_start(role),
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
    ]
    for table, policy in TABLES.items():
        if policy.free:
            continue
        statements.append(f"REVOKE ALL ON {table} FROM PUBLIC, {role}")
        statements.append(f"GRANT SELECT ON {table} TO {role}")
        for verb, columns in (("INSERT", policy.insert), ("UPDATE", policy.update)):
            if columns is None:
                statements.append(f"GRANT {verb} ON {table} TO {role}")
            elif columns:
                statements.append(f"GRANT {verb} ({', '.join(_quoted(columns))}) ON {table} TO {role}")
        if policy.delete:
            statements.append(f"GRANT DELETE ON {table} TO {role}")
    return statements


def retention_statements(role: str) -> list[str]:
    """The same for the role that drops old evidence: it reads what rests on evidence, deletes bodies, and says so in
    the ledger. It changes nothing."""
    _check(role)
    reads = [table for table in TABLES if table.partition("_")[0] in RETENTION_READS]
    pruned = [table for table, policy in TABLES.items() if policy.pruned]
    appended = TABLES["ledger_entry"].insert or ()
    return [
        *_start(role),
        f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
        f"GRANT SELECT ON {', '.join(reads)} TO {role}",
        f"GRANT DELETE ON {', '.join(pruned)} TO {role}",
        f"GRANT INSERT ON audits_prunedevidence TO {role}",
        f"GRANT USAGE ON SEQUENCE audits_prunedevidence_id_seq TO {role}",
        f"GRANT INSERT ({', '.join(_quoted(appended))}) ON ledger_entry TO {role}",
    ]


def _start(role: str) -> list[str]:
    return [
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        # Nothing of ours makes temporary tables, and they are a way around names that are not qualified.
        "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$",
        f"DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM {role}', current_database()); END $$",
        f"REVOKE CREATE ON SCHEMA public FROM {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
    ]


def _check(role: str) -> None:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", role):
        raise ValueError(f"a database role name is lower-case letters, digits and _, not {role!r}")


def _quoted(columns: tuple[str, ...]) -> list[str]:
    """Some are words of SQL, like ``interval``."""
    return [f'"{column}"' for column in columns]
