"""``kvaudit backup`` and ``kvaudit restore`` over servers of one's own, as processes."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.ops.backup.databases import ACT, FILL, Database, database, new_key

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installation(postgres_cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Made once; each test has a copy of its own, with the same keys."""
    with database(postgres_cluster, tmp_path_factory.mktemp("installation")) as found:
        found.initialise()
        found.run("-c", FILL)
        yield found


@pytest.fixture
def filled(installation: Database, postgres_cluster: Any, tmp_path: Path) -> Iterator[Database]:
    keys = {name: installation.env[name] for name in ("SECRET_KEY", "ENCRYPTION_KEY")}
    with database(postgres_cluster, tmp_path, installation.name, **keys) as found:
        yield found


@pytest.fixture(scope="module")
def backup(installation: Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the installation, for tests that only read it."""
    path = tmp_path_factory.mktemp("backup") / "kvaudit.backup"
    installation.command("backup", str(path))
    return path


def test_a_backup_says_what_it_holds_and_opens_without_kvaudit(filled: Database, tmp_path: Path) -> None:
    path, keys = tmp_path / "kvaudit.backup", tmp_path / "keys"
    said = filled.command("backup", str(path), "--keys-to", str(keys))
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    for name in ("ENCRYPTION_KEY", "SECRET_KEY"):
        assert filled.env[name].encode() not in whole, "keys are named, not contained"
        assert filled.env[name] not in said
        assert filled.env[name] in keys.read_text()
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["database.dump", "manifest.json", "manifest.sha256"]
        tar.extractall(tmp_path / "out", filter="data")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["counts"]["fleet_tenant"] == 3
    assert manifest["head"]["sequence"] == filled.one("SELECT max(sequence) FROM ledger_entry")
    assert manifest["head"]["hash"] in said
    assert list(manifest["sealed"]["fleet_tenant.credential_sealed"].values()) == [3]
    subprocess.run(
        ["sha256sum", "-c", "manifest.sha256"], cwd=tmp_path / "out", check=True, capture_output=True
    )
    assert {each.name for each in tmp_path.iterdir()} == {"kvaudit.backup", "keys", "out"}
    for again in ((str(path),), (str(tmp_path / "other"), "--keys-to", str(keys))):
        assert "is there already" in filled.command("backup", *again, code=3)
    assert path.read_bytes() == whole


def test_restored_elsewhere_it_is_the_same_installation(
    filled: Database, backup: Path, postgres_cluster: Any, tmp_path: Path
) -> None:
    keys = {name: filled.env[name] for name in ("SECRET_KEY", "ENCRYPTION_KEY")}
    with database(postgres_cluster, tmp_path, **keys) as other:
        said = other.command("restore", str(backup))
        assert "credentials of 3 tenants open" in said
        assert "do not" not in said
        assert "lost" not in said
        assert other.beside() == [], "neither the empty one nor what was restored beside it is left"
        assert other.one("SELECT count(*) FROM fleet_tenant") == 3
        assert (
            other.one("SELECT kind FROM ledger_entry ORDER BY sequence DESC LIMIT 1") == "database.restored"
        )
        assert other.head()["sequence"] == other.one("SELECT max(sequence) FROM ledger_entry")
        assert "password unchanged" in other.initialise()
        other.run("-c", ACT)
        assert "Ledger intact" in other.run("-m", "kvaudit.cli", "ledger", "verify")


def test_without_the_keys_nothing_is_restored_unless_asked_for(
    filled: Database, backup: Path, postgres_cluster: Any, tmp_path: Path
) -> None:
    with database(postgres_cluster, tmp_path, ENCRYPTION_KEY=new_key()) as other:
        said = other.command("restore", str(backup), code=3)
        assert "The credentials of 3 tenants and" in said
        assert "would not open" in said
        assert other.one("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
        said = other.command("restore", str(backup), "--without-keys")
        assert "credentials of 0 tenants open, of 3 do not" in said


def test_a_database_that_holds_something_stays_as_it_is_or_is_kept(filled: Database, backup: Path) -> None:
    filled.run("-c", ACT)
    lost = filled.one("SELECT max(sequence) FROM ledger_entry")
    said = filled.command("restore", str(backup), code=3)
    assert f"is not empty (1 deployments, {lost} entries in the ledger)" in said
    with filled.connect():
        said = filled.command("restore", str(backup), "--replace", code=3)
        assert "The database is in use (sessions: 1 of kvaudit_owner): stop web, workers" in said
    assert filled.beside() == []
    said = filled.command("restore", str(backup), "--replace")
    assert f"lost, 1 entries: entry {lost} of" in said
    assert (
        filled.one("SELECT subject FROM ledger_entry WHERE kind = 'ledger.rolled_back'") == f"ledger:{lost}"
    )
    (former,) = filled.beside()
    assert f"the former database is {former}" in said
    with filled.connect(former) as connection:
        assert connection.execute("SELECT max(sequence) FROM ledger_entry").fetchone() == (lost,)
    filled.initialise()
    assert "Ledger intact" in filled.run("-m", "kvaudit.cli", "ledger", "verify")


def test_a_broken_record_a_newer_schema_and_a_tool_that_does_not_fit_are_refused(
    filled: Database, tmp_path: Path
) -> None:
    with filled.connect() as connection:
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('fleet', '0999_later', now())"
        )
    filled.command("backup", str(tmp_path / "newer"))
    said = filled.command("restore", str(tmp_path / "newer"), "--replace", code=3)
    assert "schema is newer than this release (fleet.0999_later)" in said
    with filled.connect() as connection:
        connection.execute("DELETE FROM django_migrations WHERE name = '0999_later'")
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE ledger_entry SET kind = 'x.y' WHERE sequence = 2")
    filled.command("backup", str(tmp_path / "broken"))
    said = filled.command("restore", str(tmp_path / "broken"), "--replace", code=3)
    assert "Nothing was changed: the ledger of the backup is broken. Entry 2 was altered" in said
    assert filled.beside() == []

    old = tmp_path / "bin"
    old.mkdir()
    for name in ("pg_dump", "pg_restore"):
        (old / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) 15.4'\n")
        (old / name).chmod(0o755)
    said = filled.command("backup", str(tmp_path / "no"), code=3, KVAUDIT_PG_BIN=str(old))
    assert "pg_dump is of version 15: install the package postgresql-client-18" in said
    said = filled.command("backup", str(tmp_path / "no"), code=3, KVAUDIT_PG_BIN=str(tmp_path))
    assert "there is no pg_dump on this machine: install the package" in said
    (old / "pg_dump").write_text(
        "#!/bin/sh\ncase $1 in --version) echo 'pg_dump (PostgreSQL) 18.1';; *) echo PGDMP; kill -9 $$;; esac\n"
    )
    said = filled.command("backup", str(tmp_path / "no"), code=3, KVAUDIT_PG_BIN=str(old))
    assert "pg_dump broke off (ended by SIGKILL), so no backup was made" in said
    assert not [
        each for each in tmp_path.iterdir() if "no" in each.name and each.is_file() and "part" in each.name
    ]
    assert not (tmp_path / "no").exists()


BUSY = """
import sys, django
django.setup()
from kvaudit.server.ops.backup import command, making
making.LOCK_WAIT_MS = 200
sys.exit(command.backup(sys.argv[1:]))
"""


def test_a_busy_database_is_a_sentence_and_no_file(filled: Database, tmp_path: Path) -> None:
    with filled.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE fleet_node IN ACCESS EXCLUSIVE MODE")
        said = filled.run("-c", BUSY, str(tmp_path / "backup"), code=3)
        assert "kvaudit backup: The database is busy: a table was locked" in said
    assert list(tmp_path.iterdir()) == []
    filled.run("-c", BUSY, str(tmp_path / "backup"))
