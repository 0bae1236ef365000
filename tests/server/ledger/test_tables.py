"""What the application's role may do, table by table: every table has a line, and the database keeps to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction

from kvaudit.server.ledger.grants import grant_statements, retention_statements
from kvaudit.server.ledger.tables import TABLES

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "record.md"
MODELS = {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}
GUARDED = sorted(
    table
    for table, policy in TABLES.items()
    if not policy.free and table not in ("ledger_entry", "django_migrations")
)
INSERT_ONLY = sorted(table for table in GUARDED if TABLES[table].update == ())
ROLE, RETENTION = "tables_test_app", "tables_test_retention"


def test_every_table_has_a_line() -> None:
    """A new model: decide what the application may do with it, in `kvaudit.server.ledger.tables`, and guard it."""
    assert set(MODELS) - set(TABLES) == set()
    assert set(TABLES) - set(MODELS) == {"django_migrations"}


def test_their_columns_exist() -> None:
    for table, model in MODELS.items():
        policy = TABLES[table]
        columns = {field.column for field in model._meta.concrete_fields}
        assert {*(policy.update or ()), *(policy.insert or ())} <= columns, table
        assert policy.why, table


def test_the_document_says_the_same() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    assert rows == [f"| `{table}` | {policy.word} | {policy.why} |" for table, policy in TABLES.items()]


@pytest.fixture
def roles(db: None) -> None:
    with connection.cursor() as cursor:
        for role, statements in ((ROLE, grant_statements), (RETENTION, retention_statements)):
            cursor.execute(f"CREATE ROLE {role}")
            for statement in statements(role):
                cursor.execute(statement)


def may(role: str, table: str) -> dict[str, object]:
    columns = [
        column.name for column in connection.introspection.get_table_description(connection.cursor(), table)
    ]
    with connection.cursor() as cursor:
        found: dict[str, object] = {}
        for verb in ("SELECT", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES"):
            cursor.execute("SELECT has_table_privilege(%s, %s, %s)", [role, table, verb])
            found[verb] = cursor.fetchone()[0]
        for verb in ("INSERT", "UPDATE"):
            cursor.execute(
                "SELECT array_agg(name) FROM unnest(%s::text[]) name WHERE has_column_privilege(%s, %s, name, %s)",
                [columns, role, table, verb],
            )
            found[verb] = set(cursor.fetchone()[0] or ())
        found["columns"] = set(columns)
    return found


@pytest.mark.usefixtures("roles")
def test_privileges_are_those_of_the_line() -> None:
    for table, policy in TABLES.items():
        held = may(ROLE, table)
        assert held["SELECT"], table
        assert held["DELETE"] is policy.delete, table
        assert not any(held[verb] for verb in ("TRUNCATE", "TRIGGER", "REFERENCES")), table
        for verb, columns in (("INSERT", policy.insert), ("UPDATE", policy.update)):
            assert held[verb] == (held["columns"] if columns is None else set(columns)), (table, verb)


@pytest.mark.usefixtures("roles")
def test_retention_deletes_evidence_and_changes_nothing() -> None:
    for table, policy in TABLES.items():
        held = may(RETENTION, table)
        assert held["DELETE"] is policy.pruned, table
        assert not held["UPDATE"], table
        assert bool(held["INSERT"]) is (table in ("ledger_entry", "audits_prunedevidence")), table
        assert held["SELECT"] is (table.split("_")[0] in ("audits", "checklists", "incidents", "ledger")), (
            table
        )


@pytest.mark.django_db
def test_triggers_stand_behind_the_privileges() -> None:
    """So that a role which somebody granted more than `initialise` does is stopped as well."""
    for table in GUARDED:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT tgtype, pg_get_functiondef(tgfoid) FROM pg_trigger"
                " WHERE tgrelid = %s::regclass AND NOT tgisinternal",
                [table],
            )
            hold_back(table, cursor.fetchall())


def hold_back(table: str, rows: list[tuple[int, str]]) -> None:
    """These triggers, (kinds of event, source), refuse what the table's line does not allow."""
    refused = {
        verb
        for kind, _ in rows
        for verb, bit in (("DELETE", 8), ("UPDATE", 16), ("TRUNCATE", 32))
        if kind & bit
    }
    wanted = {"DELETE", "UPDATE", "TRUNCATE"} - ({"DELETE"} if TABLES[table].pruned else set())
    assert wanted <= refused, table
    assert all("SET search_path TO 'pg_catalog', 'pg_temp'" in body for _, body in rows), table


@pytest.mark.usefixtures("roles")
def test_more_privileges_than_initialise_gives_do_not_help() -> None:
    from tests.factories import a_deployment
    from tests.server.api.states import a_state

    a_state(a_deployment(), "pool", "pass")
    with connection.cursor() as cursor:
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        for statement in (
            "UPDATE audits_result SET verdict = 'pass'",
            "UPDATE audits_result SET summary = summary",
            "DELETE FROM audits_result",
            "UPDATE audits_checkstate SET verdict = 'error'",
            "UPDATE audits_checkstate SET since = since - interval '1 day'",
            "UPDATE audits_checkstate SET last_confirmed = now()",
            "UPDATE audits_checkstate SET expires_at = expires_at + interval '1 s'",
            "UPDATE audits_checkstate SET interval = 10000000",
            "UPDATE audits_checkstate SET closed_at = last_confirmed - interval '1 s'",
            "DELETE FROM audits_checkstate",
            "UPDATE audits_run SET verdict = 'pass'",
            "UPDATE audits_run SET started_at = now()",
            "DELETE FROM audits_run",
            "UPDATE fleet_deployment SET slug = 'x'",
            "DELETE FROM fleet_deployment",
            "UPDATE ledger_entry SET actor = 'x'",
        ):
            with (
                pytest.raises(DatabaseError, match=r"part of the record|ended|interval|append-only"),
                transaction.atomic(),
            ):
                cursor.execute(statement)


@pytest.mark.usefixtures("roles")
def test_an_empty_table_is_not_truncated_either() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        for table in INSERT_ONLY:
            with pytest.raises(DatabaseError, match="TRUNCATE is refused"), transaction.atomic():
                cursor.execute(f"TRUNCATE {table} CASCADE")


@pytest.mark.usefixtures("roles")
def test_a_fail_may_turn_out_to_have_begun_earlier_and_nothing_else() -> None:
    from tests.factories import a_deployment
    from tests.server.api.states import a_state

    a_state(a_deployment(), "pool", "fail")
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
        cursor.execute("UPDATE audits_checkstate SET since = since - interval '1 hour'")
        for change in (
            "since = since + interval '1 s'",
            "closed_at = last_confirmed - interval '1 s'",
            "last_confirmed = last_confirmed - interval '1 s'",
            "result_id = result_id, interval = 7",
        ):
            with pytest.raises(DatabaseError, match="interval"), transaction.atomic():
                cursor.execute(f"UPDATE audits_checkstate SET {change}")
        cursor.execute("UPDATE audits_checkstate SET closed_at = now()")
        for change in ("closed_at = NULL", "closed_at = now() + interval '1 s'", "expires_at = now()"):
            with pytest.raises(DatabaseError, match="closed and stays"), transaction.atomic():
                cursor.execute(f"UPDATE audits_checkstate SET {change}")


@pytest.mark.usefixtures("roles")
def test_no_verification_vouches_for_entries_that_are_not_there() -> None:
    """Else one row would have every verification say, for good, that the end was cut off."""
    from kvaudit.server.ledger import verify_job
    from kvaudit.server.ledger.chain_check import ChainCheck
    from kvaudit.server.ledger.models import Entry
    from kvaudit.server.ledger.models.verifications import Verification
    from kvaudit.server.ledger.services import record

    record(actor="system:test", kind="test", subject="x")
    last = Entry.objects.latest("sequence")
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
    for entries, last_hash in ((last.sequence + 1_000, last.hash), (last.sequence, "0" * 64)):
        with pytest.raises(DatabaseError, match="part of the record"), transaction.atomic():
            verify_job.keep(ChainCheck(entries, last_hash), asked_by="nobody")
    work = Verification.objects.create(asked_by="nobody", wanted=last.sequence)
    with pytest.raises(DatabaseError, match="part of the record"), transaction.atomic():
        Verification.objects.filter(pk=work.pk).update(
            finished_at=work.asked_at, outcome="intact", entries=last.sequence + 1, last_hash=last.hash
        )
    verify_job.keep(ChainCheck(last.sequence, last.hash), asked_by="somebody")
    assert verify_job.noted_before() == {last.sequence: last.hash}
