"""Names keys without showing them, and keeps them in a file of their own where that is asked for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from kvaudit.server.ops.backup.faults import BackupFault

NAMES = ("ENCRYPTION_KEYS", "SECRET_KEY", "SEAL_PUBLIC_KEY", "SEAL_PRIVATE_KEY")


@lru_cache(maxsize=32)
def key_id(key: str) -> str:
    """16 hex digits. Made slowly, since a SECRET_KEY that somebody thought of could be guessed from a quick hash."""
    return hashlib.scrypt(key.encode(), salt=b"kvaudit.backup/key-id", n=2**14, r=8, p=1, dklen=8).hex()


def ids() -> dict[str, list[str]]:
    """Variable -> ids of the keys that this process has; private halves have none, their public ones do."""
    return {
        "ENCRYPTION_KEYS": [key_id(key) for key in settings.ENCRYPTION_KEYS],
        "SECRET_KEY": [key_id(settings.SECRET_KEY)],
        "SEAL_PUBLIC_KEY": [key_id(settings.SEAL_PUBLIC_KEY)] if settings.SEAL_PUBLIC_KEY else [],
    }


def held() -> dict[str, str]:
    """The keys themselves, those that this process has."""
    values = {name: getattr(settings, name) for name in NAMES} | {
        "ENCRYPTION_KEYS": ",".join(settings.ENCRYPTION_KEYS)
    }
    return {name: str(value) for name, value in values.items() if value}


def write(path: Path, values: Mapping[str, str]) -> None:
    """NAME=VALUE lines, for their owner alone. Raises `BackupFault` for a file that is there, OSError."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BackupFault(f"{path} is there already: keys are written to a new file only.") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.writelines(f"{name}={value}\n" for name, value in values.items())
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> dict[str, str]:
    """What `write` wrote. Raises `BackupFault`."""
    try:
        lines = [
            line.partition("=") for line in path.read_text(encoding="ascii").splitlines() if line.strip()
        ]
    except (OSError, ValueError) as error:
        raise BackupFault(f"The keys in {path} cannot be read ({error}).") from None
    values = {name: value for name, _, value in lines}
    if not values.get("ENCRYPTION_KEYS") or set(values) - set(NAMES):
        raise BackupFault(f"{path} is not a file of keys that kvaudit backup --keys-to wrote.")
    return values
