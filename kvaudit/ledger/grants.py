"""What the application's database role may do: everything but rewriting the ledger."""

from __future__ import annotations

import re


def grant_statements(role: str) -> list[str]:
    """SQL for the owner to run after every migration, in order.

    ``role`` is a plain PostgreSQL role name; raises ValueError for anything that would need
    quoting. On the ledger the role keeps INSERT and SELECT; migrations stay the owner's.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", role):
        raise ValueError(f"a database role name is lower-case letters, digits and _, not {role!r}")
    return [
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"REVOKE CREATE ON SCHEMA public FROM {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
        f"REVOKE ALL ON ledger_entry FROM PUBLIC, {role}",
        f"GRANT SELECT, INSERT ON ledger_entry TO {role}",
        f"REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {role}",
    ]
