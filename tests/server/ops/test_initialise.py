"""A database made usable: role, grants, administrator; repeatable, and refused when it would be unsafe."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.hashers import check_password
from django.core.management import CommandError, call_command
from django.db import connection

from kvaudit.server.ops import embedded

ROLE = "kvaudit_app_of_tests"


@pytest.fixture
def database(postgres_cluster: Any, settings: Any, django_db_blocker: Any) -> Iterator[str]:
    """An empty database of its own, named by the settings; its owner's and application's URLs are set."""
    name = f"initialise_{secrets.token_hex(4)}"
    owner = {"host": str(postgres_cluster.server.socket), "user": embedded.OWNER_ROLE, "autocommit": True}
    with psycopg.connect(dbname="postgres", **owner) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
    settings.DATABASE_OWNER_URL = postgres_cluster.url(embedded.OWNER_ROLE, name)
    before = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict |= {"NAME": name, "USER": ROLE, "PASSWORD": ""}
    with django_db_blocker.unblock():
        yield name
        connection.close()
    connection.settings_dict.clear()
    connection.settings_dict.update(before)
    with psycopg.connect(dbname="postgres", **owner) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def initialise(*options: str) -> list[dict[str, str]]:
    out = StringIO()
    call_command("initialise", "--json", *options, stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def hashed() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT password FROM accounts_user WHERE username = 'admin'")
        return str(cursor.fetchone()[0])


def test_an_empty_database_becomes_usable_and_a_second_time_changes_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVAUDIT_ADMIN_PASSWORD", raising=False)
    *steps, admin = initialise()
    assert len(steps) == 3
    assert admin["user"] == "admin"
    assert check_password(admin["password"], hashed())

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user, rolsuper, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = %s",
            [ROLE],
        )
        assert cursor.fetchone() == (ROLE, False, False, False)
        cursor.execute("SELECT count(*) FROM ledger_entry")
        entries = cursor.fetchone()[0]
    assert initialise()[-1] == {"user": "admin", "password": ""}

    # A password from the environment is for a new account, unless it is asked for.
    monkeypatch.setenv("KVAUDIT_ADMIN_PASSWORD", "correct horse battery staple")
    assert initialise()[-1]["password"] == ""
    assert check_password(admin["password"], hashed())
    assert initialise("--set-password")[-1]["password"] == "correct horse battery staple"
    assert check_password("correct horse battery staple", hashed())
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_entry")
        assert cursor.fetchone()[0] == entries + 1, "only the change of the password is an act"


def test_a_password_that_the_operator_gave_is_not_printed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVAUDIT_ADMIN_PASSWORD", "correct horse battery staple")
    for options in ((), ("--set-password",)):
        out = StringIO()
        call_command("initialise", *options, stdout=out)
        assert "administrator admin, with the password of KVAUDIT_ADMIN_PASSWORD" in out.getvalue()
        assert "staple" not in out.getvalue()
        assert "one-time" not in out.getvalue()


def test_owner_and_application_must_be_two_roles(database: str, settings: Any) -> None:
    connection.settings_dict["USER"] = embedded.OWNER_ROLE
    with pytest.raises(CommandError, match=r"both name the role kvaudit_owner.*rewrite the ledger"):
        initialise()
    settings.DATABASE_OWNER_URL = ""
    with pytest.raises(CommandError, match="DATABASE_OWNER_URL is not set"):
        initialise()


def test_owner_and_application_must_name_one_database(database: str, settings: Any) -> None:
    settings.DATABASE_OWNER_URL = settings.DATABASE_OWNER_URL.replace(database, "another")
    with pytest.raises(CommandError, match="they must be one"):
        initialise()


def test_a_server_that_does_not_answer_is_a_sentence(database: str, settings: Any) -> None:
    settings.DATABASE_OWNER_URL = f"postgres://kvaudit_owner@127.0.0.1:1/{database}"
    with pytest.raises(CommandError, match="PostgreSQL does not let kvaudit_owner in"):
        initialise()


def test_retention_gets_a_role_that_is_neither_of_the_others(
    database: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = settings.DATABASE_OWNER_URL
    settings.DATABASE_RETENTION_URL = url.replace(embedded.OWNER_ROLE, ROLE)
    with pytest.raises(
        CommandError, match=f"DATABASE_RETENTION_URL names the role {ROLE}, which another URL names"
    ):
        initialise()
    settings.DATABASE_RETENTION_URL = url.replace(embedded.OWNER_ROLE, f"{ROLE}_r").replace(
        database, "another"
    )
    with pytest.raises(CommandError, match="DATABASE_RETENTION_URL names another: they must be one"):
        initialise()
    settings.DATABASE_RETENTION_URL = url.replace(embedded.OWNER_ROLE, f"{ROLE}_r")
    initialise()
    initialise()
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'audits_evidence', 'DELETE')", [f"{ROLE}_r"])
        assert cursor.fetchone()[0]
        cursor.execute("SELECT has_table_privilege(%s, 'audits_evidence', 'DELETE')", [ROLE])
        assert not cursor.fetchone()[0]
        for role in (ROLE, f"{ROLE}_r"):
            cursor.execute("SELECT has_database_privilege(%s, current_database(), 'TEMPORARY')", [role])
            assert not cursor.fetchone()[0]


def test_a_database_that_was_rolled_back_is_refused_until_somebody_accepts_it(
    database: str, settings: Any, tmp_path: Path
) -> None:
    head_file = tmp_path / "ledger_head.json"
    settings.LEDGER_HEAD_FILE = str(head_file)
    initialise()
    lost = json.dumps({"sequence": 864, "hash": "a" * 64, "at": "2026-12-01T12:00:00+00:00"})
    head_file.write_text(lost)
    with pytest.raises(
        CommandError, match=r"rolled back: .* entry 864 of 2026-12-01 12:00 UTC .*--accept-rollback"
    ):
        initialise()
    assert head_file.read_text() == lost
    steps = initialise("--accept-rollback")
    assert any("accepted and recorded" in step.get("step", "") for step in steps)
    with connection.cursor() as cursor:
        cursor.execute("SELECT subject, digest FROM ledger_entry WHERE kind = 'ledger.rolled_back'")
        assert cursor.fetchall() == [("ledger:864", "a" * 64)]
    initialise()
    head_file.write_text("")
    with pytest.raises(CommandError, match="cannot be read"):
        initialise("--accept-rollback")
