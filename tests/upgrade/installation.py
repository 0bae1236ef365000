"""An installation of the first release after an afternoon of use: its database and its keys (data/README.md)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from kvaudit.server.ops import embedded
from kvaudit.server.ops.process import Child
from tests.waiting import until

DATA = Path(__file__).with_name("data")
DUMP = DATA / "kvaudit-6d7b74b.dump"
KEYS = ("secret_key", "encryption_key", "seal_private_key")
ADMIN, PASSWORD = "admin", "h7-admin-password"


def restore(server: embedded.Postgres, database: str = embedded.DATABASE) -> None:
    """Load the dump into ``database``, which is made when it is missing, of a server that runs."""
    with psycopg.connect(
        host=str(server.socket), user=embedded.OWNER_ROLE, dbname="postgres", autocommit=True
    ) as connection:
        if not connection.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = %s", [embedded.APP_ROLE]
        ).fetchone():
            connection.execute(f"CREATE ROLE {embedded.APP_ROLE} LOGIN".encode())
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [database]).fetchone():
            connection.execute(f"CREATE DATABASE {database}".encode())
    command = [str(server.binaries / "pg_restore"), "-h", str(server.socket), "-U", embedded.OWNER_ROLE]
    command += ["-d", database, "--exit-on-error", str(DUMP)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def fill_release(state: Path, look: Callable[[psycopg.Connection[Any]], None] = lambda _: None) -> None:
    """Make the state folder that ``make up`` of that release left behind when it was stopped: data, keys, static
    files as they were kept then, and the variables of its own last start. ``look`` sees the database as it was."""
    (state / "run").mkdir(parents=True)
    server = embedded.Postgres(state, ("fsync=off",))
    server.initialise()
    log_path = state.parent / "restore.log"
    with log_path.open("ab") as log:
        child = Child("postgres", lambda: server.start(log), grace=30, log_path=log_path)
        child.start()
    try:
        until(lambda: server.ready() or not child.alive(), "PostgreSQL to answer", about=child.last_words)
        assert child.alive(), child.last_words()
        restore(server)
        with psycopg.connect(
            host=str(server.socket), user=embedded.OWNER_ROLE, dbname=embedded.DATABASE
        ) as connection:
            look(connection)
    finally:
        child.stop()
    shutil.rmtree(state / "run")
    for folder, mode in (("secrets", 0o700), ("logs", 0o750), ("run", 0o755), ("static", 0o755)):
        (state / folder).mkdir(mode=mode)
    for name in KEYS:
        shutil.copyfile(DATA / name, state / "secrets" / name)
        (state / "secrets" / name).chmod(0o600)
    (state / "static" / "plotly").mkdir()
    for name in ("plotly/plotly.min.js", "plotly/plotly.min.0123456789ab.js", ".collected"):
        (state / "static" / name).write_text("of the release before\n")
    (state / "static" / "staticfiles.json").write_text('{"version": "1.1", "paths": {}, "hash": ""}')
    (state / "local.env").write_text(
        f"STATIC_COMPRESSED=0\nSTATIC_ROOT={state / 'static'}\nKVAUDIT_PORT=1\nKVAUDIT_BASE_URL=http://127.0.0.1:1\n"
    )
    (state / "up.lock").write_text("1\n")
