"""Writes the SQL of the triggers that guard tables of the record; for migrations. What they call is in
migration 0005 of the ledger, what stands in which table's policy in `kvaudit.server.ledger.tables`."""

from __future__ import annotations

from collections.abc import Sequence


def insert_only(table: str, *, delete_by_grant: bool = False) -> tuple[str, str]:
    """No UPDATE, no TRUNCATE and no DELETE; ``delete_by_grant`` leaves the last to privileges (retention's role)."""
    events = "UPDATE" if delete_by_grant else "UPDATE OR DELETE"
    return _both(
        (table, "insert_only", events, "ROW", "record_insert_only()"),
        (table, "no_truncate", "TRUNCATE", "STATEMENT", "record_insert_only()"),
    )


def kept(table: str) -> tuple[str, str]:
    """Rows may change as other guards say, but none goes."""
    return _both(
        (table, "kept", "DELETE", "ROW", "record_insert_only()"),
        (table, "no_truncate", "TRUNCATE", "STATEMENT", "record_insert_only()"),
    )


def fixed(table: str, *columns: str) -> tuple[str, str]:
    """These columns never change."""
    return _both((table, "fixed", "UPDATE", "ROW", f"record_fixed({_texts(columns)})"))


def once(table: str, *columns: str) -> tuple[str, str]:
    """Each of these columns is set once."""
    return _both((table, "once", "UPDATE", "ROW", f"record_once({_texts(columns)})"))


def ended(table: str, column: str, *still: str) -> tuple[str, str]:
    """Once this column is set the row stays as it is, but for the columns ``still``."""
    return _both((table, "ended", "UPDATE", "ROW", f"record_ended({_texts((column, ','.join(still)))})"))


def trigger(table: str, name: str, events: str, function: str) -> tuple[str, str]:
    """A guard of a table's own."""
    return _both((table, name, events, "ROW", f"{function}()"))


def joined(*guards: tuple[str, str]) -> tuple[str, str]:
    """(SQL that makes them, SQL that takes them away again in the opposite order)"""
    forward, backward = zip(*guards, strict=True)
    return "".join(forward), "".join(reversed(backward))


def _both(*triggers: tuple[str, str, str, str, str]) -> tuple[str, str]:
    forward = backward = ""
    for table, name, events, each, function in triggers:
        forward += (
            f"CREATE TRIGGER {table}_{name} BEFORE {events} ON {table} "
            f"FOR EACH {each} EXECUTE FUNCTION {function};\n"
        )
        backward = f"DROP TRIGGER {table}_{name} ON {table};\n" + backward
    return forward, backward


def _texts(values: Sequence[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)
