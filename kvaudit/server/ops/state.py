"""Manages the state folder of one machine: its lock, its secrets, its logs, and the environment made from them.

Layout: ``up.lock`` (held while it runs), ``secrets/`` (mode 0700), ``pgdata/``, ``valkey/``, ``run/``
(sockets), ``logs/``, ``static/`` and ``local.env``, which lets ``manage.py`` find all this.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import IO

from kvaudit.server import disk

LOCAL_ENVIRONMENT = "local.env"
_MAX_LOG_BYTES = 20_000_000
REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent


NO_ROOM = "The disk of the state folder {folder} is full: make room on it, or choose another folder with KVAUDIT_STATE."


class StateFault(RuntimeError):
    """The state folder cannot be used; the text says why and what to do."""


def default_state() -> Path:
    """KVAUDIT_STATE, else ``var`` beside manage.py, else ``var`` here."""
    chosen = os.environ.get("KVAUDIT_STATE", "").strip()
    if chosen:
        return Path(chosen).expanduser().resolve()
    home = REPOSITORY if (REPOSITORY / "manage.py").exists() else Path.cwd()
    return home / "var"


class State:
    """The folder, made when it is missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.secrets = folder / "secrets"
        self.static = folder / "static"
        self._lock: IO[str] | None = None
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            for part, mode in ((self.logs, 0o750), (self.secrets, 0o700), (folder / "run", 0o755)):
                part.mkdir(mode=mode, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK) or not os.access(self.secrets, os.W_OK | os.X_OK):
                raise PermissionError(13, "permission denied")
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in disk.NO_ROOM:
                raise StateFault(NO_ROOM.format(folder=folder)) from error
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise StateFault(
                f"The state folder {folder} cannot be written ({why.lower()}): start kvaudit as the user it "
                "belongs to, or choose another folder with KVAUDIT_STATE."
            ) from error

    def lock(self) -> None:
        """Take the folder for this process; raises `StateFault` when another one has it."""
        handle = (self.folder / "up.lock").open("a+", encoding="ascii")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            handle.close()
            raise StateFault(
                f"kvaudit already runs on {self.folder} (process {holder}): stop it first, or start a second "
                "one beside it with another KVAUDIT_STATE and KVAUDIT_PORT."
            ) from None
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        self._lock = handle  # released by the kernel with the process, however it ends

    @staticmethod
    def require_room(folders: Iterable[Path]) -> None:
        """Raise `StateFault` when the disk of one of these folders has not the room that a start takes."""
        for folder in folders:
            room = disk.room(folder)
            if room is not None and room.free < disk.LEAST_TO_START:
                raise StateFault(
                    f"The disk of {folder} is full ({room.in_words()} free, {disk.LEAST_TO_START // 2**20} MB are "
                    "needed): make room on it, or choose another folder with KVAUDIT_STATE."
                )

    def unlock(self) -> None:
        """Give the folder back."""
        if self._lock:
            self._lock.close()
            self._lock = None

    def secret(self, name: str) -> Path:
        """The file of a secret, made with a random value the first time."""
        path = self.secrets / name
        if not path.exists():
            value = (
                base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
                if name in ("encryption_key", "seal_private_key")
                else secrets.token_urlsafe(64)
            )
            _write_secret(path, value)
        return path

    def replace_secret(self, name: str, value: str) -> Path | None:
        """Give a secret another value; the file with the former one, put aside, None where there was no other."""
        path, aside = self.secrets / name, None
        if path.exists():
            if path.read_text(encoding="ascii").strip() == value:
                return None
            aside = next(
                each
                for number in count(1)
                if not (each := path.with_name(f"{name}.before-{number}")).exists()
            )
            os.link(path, aside)
        _write_secret(path, value)
        return aside

    def log_path(self, name: str) -> Path:
        """The log of one process; an overlong one is put aside first."""
        path = self.logs / f"{name}.log"
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            path.rename(path.with_suffix(".log.old"))
        return path

    def open_log(self, name: str) -> IO[bytes]:
        """The log, to append to."""
        return self.log_path(name).open("ab")

    def write_local_environment(self, variables: dict[str, str]) -> None:
        """Keep what ``manage.py`` needs to reach this machine's servers; secrets only by file name."""
        lines = [f"{name}={value}\n" for name, value in sorted(variables.items())]
        (self.folder / LOCAL_ENVIRONMENT).write_text("".join(lines), encoding="utf-8")


def _write_secret(path: Path, value: str) -> None:
    # Written aside and renamed: a crash in between must not leave an empty key.
    half_done = path.with_suffix(".new")
    handle = os.open(half_done, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(file.fileno())
    half_done.rename(path)


def adopt_local_environment() -> None:
    """Fill in the variables of the state folder's servers, unless a database is named already.

    For ``manage.py`` and ``kvaudit`` commands typed beside a running ``make up``; what is set stays.
    """
    if os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE"):
        return
    try:
        text = (default_state() / LOCAL_ENVIRONMENT).read_text(encoding="utf-8")
    except OSError:
        return
    for line in text.splitlines():
        name, _, value = line.partition("=")
        twin = name.removesuffix("_FILE") if name.endswith("_FILE") else f"{name}_FILE"
        if name not in os.environ and twin not in os.environ:
            os.environ[name] = value
