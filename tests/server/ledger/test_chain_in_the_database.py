"""The database numbers, dates and chains what is appended, exactly as `kvaudit.server.ledger.chain` does, whoever appends."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvaudit.server.ledger import services
from kvaudit.server.ledger.chain_check import verify_chain
from kvaudit.server.ledger.grants import grant_statements
from kvaudit.server.ledger.models import Entry

pytestmark = pytest.mark.django_db

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=200)
HOSTILE = st.text(
    st.sampled_from("\"\\\b\t\n\f\r\x01\x1f\x7f\x80\xa0é\u2028\ud7ff\ue000\uffff😀\U0010ffff $'%")
)
ROLE = "chain_test_app"


@pytest.fixture
def _as_the_application() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE}")
        for statement in grant_statements(ROLE):
            cursor.execute(statement)
        cursor.execute(f"SET LOCAL ROLE {ROLE}")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXT | HOSTILE)
@example("")
@example("\U00010000\U0010ffff")
@example('\\"\\\\""')
@example("$$ ' %s {} \\u0041")
def test_a_string_is_written_as_python_writes_it(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_json_text(%s)", [text])
        assert cursor.fetchone()[0] == json.dumps(text, ensure_ascii=True)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HOSTILE.filter(bool), TEXT.filter(bool), TEXT.filter(bool))
def test_hashes_are_those_that_python_computes(actor: str, kind: str, subject: str) -> None:
    made = services.record(
        actor=f"system:{actor}"[:200], kind=kind[:100], subject=subject[:300], digest="0" * 64
    )
    assert made.hash == services.hash_of(made) == services.hash_of(Entry.objects.get(pk=made.pk))


@pytest.mark.parametrize(
    "setting",
    [
        "standard_conforming_strings = off",
        "search_path = pg_temp, public",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'German, DMY'",
        "intervalstyle = 'sql_standard'",
        "bytea_output = 'escape'",
        "client_encoding = 'LATIN1'",
    ],
)
def test_no_setting_of_a_session_changes_a_hash(setting: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL {setting}")
        cursor.execute(
            "INSERT INTO public.ledger_entry (actor, kind, subject, digest) VALUES ('a\\b', 'é\"', %s, '')",
            ["run:1 \xe9"],
        )
        cursor.execute("SET LOCAL client_encoding = 'UTF8'")
        cursor.execute("SET LOCAL search_path = public")
        cursor.execute("SET LOCAL timezone = 'UTC'")
        cursor.execute("SET LOCAL datestyle = 'ISO, MDY'")
    found = verify_chain(Entry.objects.order_by("sequence"))
    assert (found.entries, found.problem) == (1, "")


@pytest.mark.parametrize(
    "columns",
    [
        "sequence, actor, kind, subject, digest",
        "at, actor, kind, subject, digest",
        "previous, actor, kind, subject, digest",
        "hash, actor, kind, subject, digest",
    ],
)
@pytest.mark.parametrize("verb", ["INSERT", "UPSERT"])
@pytest.mark.usefixtures("_as_the_application")
def test_the_application_names_nothing_but_what_was_done(columns: str, verb: str) -> None:
    first = columns.partition(",")[0]
    value = {"sequence": "0", "at": "'2020-01-01'", "previous": "''", "hash": "'x'"}[first]
    also = f" ON CONFLICT (sequence) DO UPDATE SET {first} = {value}" if verb == "UPSERT" else ""
    with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
        connection.cursor().execute(
            f"INSERT INTO ledger_entry ({columns}) VALUES ({value}, 'user:admin', 'k', 's', ''){also}"
        )


@pytest.mark.parametrize("sequence", [0, -1, 1, 7, 2**63 - 1])
def test_what_even_the_owner_says_of_number_time_and_hash_does_not_count(sequence: int) -> None:
    services.record(actor="system:x", kind="k", subject="s")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_entry VALUES (%s, '2020-01-01', 'user:admin', 'k', 's', '', 'p', 'h')",
            [sequence],
        )
    made = Entry.objects.latest("sequence")
    assert made.sequence == 2
    assert abs(made.at - datetime.now(UTC)) < timedelta(minutes=5)
    assert verify_chain(Entry.objects.order_by("sequence")).problem == ""


@pytest.mark.parametrize(
    "values",
    [
        "'', 'k', 's', ''",
        "'a', '', 's', ''",
        "'a', 'k', '', ''",
        "'a', 'k', 's', 'ABC'",
        "NULL, 'k', 's', ''",
    ],
)
def test_entries_that_say_nothing_are_refused_by_the_database_too(values: str) -> None:
    with pytest.raises(DatabaseError, match="ledger"), transaction.atomic():
        connection.cursor().execute(
            f"INSERT INTO ledger_entry (actor, kind, subject, digest) VALUES ({values})"
        )


@pytest.mark.usefixtures("_as_the_application")
def test_several_in_one_statement_are_numbered_in_their_order() -> None:
    made = services.record_all(
        actor="system:x", acts=[services.Act("k", f"run:{number}") for number in range(30)]
    )
    assert [(entry.sequence, entry.subject) for entry in made] == [(n + 1, f"run:{n}") for n in range(30)]
    assert verify_chain(Entry.objects.order_by("sequence")).entries == 30


@pytest.mark.usefixtures("_as_the_application")
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE ledger_entry DISABLE TRIGGER ledger_entry_chain",
        "DROP TRIGGER ledger_entry_chain ON ledger_entry",
        "SET session_replication_role = replica",
        "CREATE OR REPLACE FUNCTION ledger_json_text(value text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
        "CREATE TEMPORARY TABLE ledger_entry (sequence bigint)",
        "DELETE FROM ledger_verification",
        "UPDATE ledger_verification SET asked_by = 'x'",
    ],
)
def test_the_application_cannot_put_itself_in_the_databases_place(statement: str) -> None:
    with pytest.raises(DatabaseError, match=r"permission denied|must be owner"), transaction.atomic():
        connection.cursor().execute(statement)
