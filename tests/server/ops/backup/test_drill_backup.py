"""The drill: an installation in use is backed up while it runs, restored on another machine, and goes on there; an
older database put in its place is noticed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kvaudit.server.ops import embedded
from tests.drills import fill, small_disk
from tests.server.ops.backup.databases import database
from tests.server.ops.running import REPOSITORY, Up, clean_environment, free_port, new_state
from tests.upgrade import installation
from tests.upgrade.test_upgrade import log_in
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.drill

LAST = "SELECT max(sequence) FROM ledger_entry"


def connect(state: Path) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=str(state / "run" / "pg"), user=embedded.OWNER_ROLE, dbname=embedded.DATABASE, autocommit=True
    )


def one(state: Path, query: str) -> Any:
    with connect(state) as connection:
        row = connection.execute(query.encode()).fetchone()
        assert row
        return row[0]


def kvaudit(state: Path, *arguments: str, code: int = 0) -> str:
    module = "kvaudit.cli" if arguments[0] == "ledger" else "kvaudit.server.ops.backup.command"
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env=clean_environment() | {"KVAUDIT_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def a_run_ends(state: Path, up: Up) -> None:
    """One that begins from now on."""
    newest = one(state, "SELECT max(id) FROM audits_run")
    ended = f"SELECT count(*) FROM audits_run WHERE id > {newest} AND state = 'finished'"
    with connect(state) as connection:
        connection.execute(
            "UPDATE audits_plan SET next_due = date_trunc('second', now()) WHERE enabled AND valid_to IS NULL"
        )
    until(lambda: one(state, ended) > 0, "a run ends", 2 * PATIENCE, about=lambda: up.said() + up.logs())


def stopped(up: Up) -> None:
    up.process.send_signal(signal.SIGTERM)
    assert up.ended() == 0, up.said()


@pytest.fixture
def machines() -> Iterator[tuple[Path, Path]]:
    """The state folders of two, the first with the data and the keys of an installation in use."""
    here, there = new_state(), new_state()
    here.mkdir()
    installation.fill_release(here)
    yield here, there
    for state in (here, there):
        shutil.rmtree(state.parent, ignore_errors=True)


def test_backup_restore_elsewhere_and_go_on(machines: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = machines
    early, late, keys = tmp_path / "early", tmp_path / "late", tmp_path / "keys"
    up = Up(here, free_port(), BEAT_SECONDS="1")
    try:
        up.ready()
        kvaudit(here, "backup", str(early), "--keys-to", str(keys))
        a_run_ends(here, up)
        refused = kvaudit(here, "restore", str(early), "--replace", code=3)
        assert "kvaudit already runs on" in refused
        stopped(up)
        kvaudit(here, "backup", str(late))  # of one that does not run
    finally:
        up.destroy()

    said = kvaudit(there, "restore", str(early), code=3)
    assert "would not open" in said or "is not among yours" in said
    said = kvaudit(there, "restore", str(early), "--keys", str(keys))
    assert "credentials of" in said
    assert "do not" not in said
    assert (there / "secrets" / "encryption_key").read_text() == (
        installation.DATA / "encryption_key"
    ).read_text(), "the keys of the backup lie where kvaudit up looks for them"
    subprocess.run(["cp", "-a", there / "pgdata", there.parent / "older"], check=True)
    said = kvaudit(there, "restore", str(late), "--replace")
    assert "the former database is kvaudit_before_" in said

    up = Up(there, free_port(), BEAT_SECONDS="1", AUDIT_LEASE_SECONDS="120")
    try:
        assert up.ready() == "(unchanged)"
        log_in(up.url)
        a_run_ends(there, up)
        assert "Ledger intact" in kvaudit(there, "ledger", "verify")
        stopped(up)
        noted = (there / "ledger_head.json").read_text()

        shutil.move(there / "pgdata", there.parent / "newer")
        shutil.move(there.parent / "older", there / "pgdata")
        refused_up = Up(there, free_port())
        assert refused_up.ended() == 3
        assert "it holds another entry" in refused_up.said() or "was rolled back" in refused_up.said()
        assert "--accept-rollback" in refused_up.said()
        assert "ready" not in refused_up.said()
        assert (there / "ledger_head.json").read_text() == noted
    finally:
        up.destroy()


def test_a_backup_onto_a_full_disk_leaves_nothing(postgres_cluster: Any, tmp_path: Path) -> None:
    with small_disk(1) as disk, database(postgres_cluster, tmp_path) as filled:
        filled.initialise()
        filler = fill(disk)
        said = filled.command("backup", str(disk / "backup"), code=3)
        assert "The disk is full, so it was not done: make room, then try again." in said
        assert [each.name for each in disk.iterdir()] == [filler.name]
        filler.unlink()
        filled.command("backup", str(disk / "backup"))


def test_a_restore_that_is_killed_changes_nothing_and_the_next_one_succeeds(
    postgres_cluster: Any, tmp_path: Path
) -> None:
    with database(postgres_cluster, tmp_path) as filled:
        filled.initialise()
        filled.command("backup", str(tmp_path / "backup"))
        last = filled.one(LAST)
        killer = tmp_path / "bin"
        killer.mkdir()
        (killer / "pg_restore").write_text(
            "#!/bin/sh\ncase $1 in --version) echo 'pg_restore (PostgreSQL) 18.1';; *) kill -9 $PPID;; esac\n"
        )
        (killer / "pg_restore").chmod(0o755)
        filled.command("restore", str(tmp_path / "backup"), "--replace", code=-9, KVAUDIT_PG_BIN=str(killer))
        assert filled.one(LAST) == last
        assert filled.beside() == [f"{filled.name}_restore"]
        filled.command("restore", str(tmp_path / "backup"), "--replace")
        assert filled.one(LAST) > last
        assert f"{filled.name}_restore" not in filled.beside()
