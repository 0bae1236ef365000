"""Reaches the database that a backup is made of or restored into: the environment's, or the embedded one of the state
folder, which is started for the while when ``kvaudit up`` does not run.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import dj_database_url
import psycopg
from psycopg.conninfo import make_conninfo

from kvaudit.server import disk
from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.embedded import APP_ROLE, OWNER_ROLE, RETENTION_ROLE, Postgres
from kvaudit.server.ops.environment import Environment
from kvaudit.server.ops.launch import Launch
from kvaudit.server.ops.own_variables import own_variables, private_half
from kvaudit.server.ops.process import Child
from kvaudit.server.ops.stale_processes import end_leftovers
from kvaudit.server.ops.state import State, StateFault, default_state

URLS = ("DATABASE_URL", "DATABASE_OWNER_URL", "DATABASE_RETENTION_URL")
UNUSED_BROKER = "redis://127.0.0.1:1"
"""Django's settings want one; nothing is sent."""
_SECRETS = ("SECRET_KEY", "ENCRYPTION_KEY", "ENCRYPTION_KEYS", "SEAL_PUBLIC_KEY", "SEAL_PRIVATE_KEY")


@dataclass(frozen=True, slots=True)
class Reached:
    """``state``: the folder whose secrets are the product's; ``tools``: that of the embedded server's programs."""

    owner_url: str
    name: str
    state: State | None = None
    tools: Path | None = None
    embedded: bool = False

    def connect(self, database: str = "", **options: Any) -> psycopg.Connection[Any]:
        """As the owner. Raises `BackupFault`."""
        try:
            return psycopg.connect(self._conninfo(database, secret=True), connect_timeout=10, **options)
        except psycopg.OperationalError as error:
            raise BackupFault(f"PostgreSQL does not let the owner in: {str(error).strip()}") from None

    def for_tools(self, database: str = "") -> tuple[str, dict[str, str]]:
        """The connection for pg_dump and pg_restore: without the password, which is in the variables."""
        password = str(dj_database_url.parse(self.owner_url).get("PASSWORD") or "")
        return self._conninfo(database, secret=False), {"PGPASSWORD": password} if password else {}

    def _conninfo(self, database: str, *, secret: bool) -> str:
        found = dj_database_url.parse(self.owner_url)
        options: dict[str, Any] = {
            name: value for name, value in (found.get("OPTIONS") or {}).items() if isinstance(value, str)
        }
        parts = {"host": found["HOST"], "port": found["PORT"], "user": found["USER"]}
        if secret:
            parts["password"] = found["PASSWORD"]
        wanted = {name: value for name, value in parts.items() if value}
        return make_conninfo("", dbname=database or str(found["NAME"]), **{**options, **wanted})


@contextmanager
def reached(*, alone: bool, make: bool = False) -> Iterator[Reached]:
    """``alone``: refuse while ``kvaudit up`` runs. ``make``: make the embedded database when there is none. Sets the
    variables that Django's settings need, as `kvaudit up` would."""
    environment = Environment(os.environ)
    if environment.text("DATABASE_URL"):
        environment.postgres_url("DATABASE_URL")
        owner = environment.postgres_url("DATABASE_OWNER_URL")
        environment.finish()
        if not environment.text("BROKER_URL"):
            os.environ["BROKER_URL"] = UNUSED_BROKER
        folder = default_state()
        state = State(folder) if (folder / "secrets").is_dir() and alone else None
        if state:
            state.lock()
        try:
            if (folder / "secrets").is_dir():
                _adopt(state or State(folder), {})
            yield Reached(owner, _name_in(owner), state)
        finally:
            if state:
                state.unlock()
        return
    with _embedded(default_state(), alone=alone, make=make) as found:
        yield found


@contextmanager
def _embedded(folder: Path, *, alone: bool, make: bool) -> Iterator[Reached]:
    if not make and not (folder / "secrets").is_dir():
        raise BackupFault(
            f"There is no database: {folder} is no state folder of kvaudit up (KVAUDIT_STATE), and DATABASE_URL is "
            "not set."
        )
    state = State(folder)
    runs = False
    try:
        state.lock()
    except StateFault:
        if alone:
            raise
        runs = True
    try:
        server = Postgres(folder)
        if not make and not (server.folder / "PG_VERSION").exists():
            raise BackupFault(f"There is no database in {server.folder}.")
        urls = dict(
            zip(URLS, (server.url(role) for role in (APP_ROLE, OWNER_ROLE, RETENTION_ROLE)), strict=True)
        )
        _adopt(state, urls | {"BROKER_URL": UNUSED_BROKER})
        found = Reached(
            urls["DATABASE_OWNER_URL"], _name_in(urls["DATABASE_URL"]), state, server.binaries, True
        )
        if runs:
            if not server.ready():
                raise BackupFault(
                    "kvaudit up runs, and its database does not answer yet: try again in a minute."
                )
            yield found
        else:
            state.require_room([folder, server.folder])
            end_leftovers(folder / "run" / "children.json")
            with _started(server, state):
                yield found
    finally:
        state.unlock()


@contextmanager
def _started(server: Postgres, state: State) -> Iterator[None]:
    server.initialise()

    def start() -> subprocess.Popen[bytes]:
        with state.open_log(server.name) as log:
            return server.start(log)

    child = Child(
        server.name, start, server.stop_signal, grace=20.0, log_path=state.logs / f"{server.name}.log"
    )
    child.start()
    try:
        while not server.ready():
            if not child.alive():
                raise BackupFault(
                    f"PostgreSQL {child.exit_words()}. The end of {child.log_path}:\n{child.last_words()}"
                )
            _wait(child)
        yield
    finally:
        child.stop()


def _wait(child: Child) -> None:
    assert child.process
    with suppress(subprocess.TimeoutExpired):
        child.process.wait(0.05)


def _adopt(state: State, servers: dict[str, str]) -> None:
    """The variables that ``kvaudit up`` makes, for this process; what is set stays."""
    made = servers | own_variables(Launch(state, "127.0.0.1", 8000, {}), servers) | private_half(state)
    for name, value in made.items():
        twin = name.removesuffix("_FILE") if name.endswith("_FILE") else f"{name}_FILE"
        if name in servers or not (os.environ.get(name) or os.environ.get(twin)):
            os.environ.pop(twin, None)
            os.environ[name] = value


def beside(name: str) -> str:
    """The database that is restored into; the longest name has 63 bytes."""
    return f"{name[:50]}_restore"


def aim_at(database: str) -> None:
    """Django, not yet set up, will use this database instead, as every role."""
    environment = Environment(os.environ)
    for name in URLS:
        if url := environment.text(name):
            os.environ.pop(f"{name}_FILE", None)
            os.environ[name] = urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def set_keys(values: dict[str, str]) -> None:
    """This process has these keys and no others."""
    for name in _SECRETS:
        os.environ.pop(name, None)
        os.environ.pop(f"{name}_FILE", None)
    os.environ.update(values)


def room_for(folder: Path, needed: int, what: str) -> None:
    """Raises `BackupFault` where the disk of ``folder`` has not that many bytes."""
    room = disk.room(folder)
    if room is not None and room.free < needed + disk.FULL:
        raise BackupFault(
            f"The disk of {folder} has {room.in_words()} free, and {what} needs about {-(-needed // 2**20)} MB: make "
            "room on it."
        )


def _name_in(url: str) -> str:
    return str(dj_database_url.parse(url)["NAME"])
