"""Says what a backup holds, and compares that with where it would be restored. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kvaudit.server.ops.backup.faults import BackupFault

SCHEMA = "kvaudit.backup/1"
TENANT_KEYS = "fleet_tenant.credential_sealed"
NO_KEY = ""
"""Stands, among key ids, for secrets that no key of then opened."""

Sealed = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``migrations``: "app.name" of all that had run. ``sealed``: column -> key id -> how many secrets it opens; None
    where that could not be known. ``keys``: name of the variable -> ids. ``database_bytes``: size of the database,
    ``dump_bytes`` and ``sha256``: of the dump in the file."""

    made_at: str
    product: str
    server_version: int
    tool_version: int
    migrations: list[str]
    head: dict[str, Any]
    counts: dict[str, int]
    sealed: Sealed | None
    keys: dict[str, list[str]]
    database_bytes: int
    dump_bytes: int = 0
    sha256: str = ""
    schema: str = field(default=SCHEMA)

    def as_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        """Raises `BackupFault` for what is no manifest, or one of a later release."""
        try:
            fields = json.loads(text)
            schema = fields["schema"]
            if schema != SCHEMA:
                raise BackupFault(
                    f"Its manifest is {str(schema)[:40]!r}, and this release reads {SCHEMA}: restore it with the "
                    "release that made it, or a later one."
                )
            found = cls(**fields)
            found.head_sequence, found.head_hash  # noqa: B018 - they must be there
            numbers = (found.server_version, found.tool_version, found.database_bytes, found.dump_bytes)
            if not all(isinstance(number, int) for number in numbers):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BackupFault("Its manifest cannot be read: the file was damaged.") from None
        return found

    @property
    def head_sequence(self) -> int:
        return int(self.head["sequence"])

    @property
    def head_hash(self) -> str:
        return str(self.head["hash"])

    def newer_than(self, known: Collection[str]) -> list[str]:
        """Migrations that the code does not know: its schema is newer."""
        return sorted(set(self.migrations) - set(known))

    def missing_keys(self, held: Collection[str]) -> str:
        """ "" or a sentence: how many credentials would not open with the keys of these ids."""
        if self.sealed is None:
            missing = sorted(set(self.keys.get("ENCRYPTION_KEYS", [])) - set(held))
            return (
                f"Key {' and '.join(missing)} of the backup is not among yours, and how many credentials it opens was "
                "not counted, since the schema was not that of the release that made the backup."
                if missing
                else ""
            )
        lost = {
            column: sum(count for key, count in opened.items() if key != NO_KEY and key not in held)
            for column, opened in self.sealed.items()
        }
        if not any(lost.values()):
            return ""
        tenants = lost.pop(TENANT_KEYS, 0)
        others = sum(lost.values())
        needed = sorted({key for opened in self.sealed.values() for key in opened} - {NO_KEY, *held})
        return (
            f"The credentials of {tenants} tenants and {others} other secrets would not open: they were sealed with "
            f"key {' and '.join(needed)}, which is not among your ENCRYPTION_KEYS."
        )
