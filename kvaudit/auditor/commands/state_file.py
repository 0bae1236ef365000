"""Keeps what the runs of one pipeline found between them, in a file: trials, misses, and markers that are still live.

One JSON object a line. The first says what the file is; every other names the SHA-256 of the line before it, so that a
line that was changed or left out is seen (the last ones may be missing: nothing vouches for an end). A file that is not
ours, or broken, is never written to.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from kvaudit.auditor.stats import run_evidence
from kvaudit.auditor.stats.run_evidence import RunEvidence
from kvaudit.auditor.text.markers import Marker, live
from kvaudit.auditor.verdict import Result

SCHEMA = "kvaudit.state/1"
SAYS = (
    "What kvaudit runs found: trials, misses and planted words that are looked for during 30 days. Each line names the "
    "SHA-256 of the line before it."
)
LIVE = timedelta(days=30)
LARGEST = 64 << 20
"""Bytes; a run adds some 50,000."""

MOVE_IT = "Give another file, or move this one away and begin anew."


class UnusableState(Exception):
    """The file cannot be used; the text is the sentence that says why."""


@dataclass(slots=True)
class StateFile:
    """The runs of a file, oldest first. ``deployment`` is whose they are, "" = nobody said."""

    path: Path
    deployment: str
    lines: list[Mapping[str, Any]] = field(default_factory=list)
    _bytes: bytes = b""

    @classmethod
    def opened(cls, path: str, deployment: str) -> StateFile:
        """Read and verify a file, or begin one where none is. Raises `UnusableState`."""
        state = cls(Path(path), deployment)
        try:
            if state.path.exists():
                state._read()
            elif not state.path.parent.is_dir():
                raise UnusableState(f"--state {path}: its folder does not exist.")
        except OSError as error:
            raise UnusableState(f"--state {path} cannot be read ({error.strerror}).") from None
        return state

    def _read(self) -> None:
        if self.path.stat().st_size > LARGEST:
            raise UnusableState(f"--state {self.path} is larger than {LARGEST >> 20} MiB. {MOVE_IT}")
        self._bytes = self.path.read_bytes()
        previous = ""
        for number, line in enumerate(self._bytes.splitlines(keepends=True), start=1):
            found: Any = None
            with suppress(orjson.JSONDecodeError):
                found = orjson.loads(line)
            if number == 1 and not (isinstance(found, dict) and found.get("schema") == SCHEMA):
                raise UnusableState(f"--state {self.path} is no file of kvaudit ({SCHEMA}). {MOVE_IT}")
            if not isinstance(found, dict) or not line.endswith(b"\n"):
                raise UnusableState(f"--state {self.path} is broken: line {number} is not whole. {MOVE_IT}")
            if found.get("previous") != previous:
                raise UnusableState(
                    f"--state {self.path} was changed: line {number} does not follow the one before it. {MOVE_IT}"
                )
            previous = _digest(line)
            self.lines.append(found)
        held = self.lines[0].get("deployment") if self.lines else self.deployment
        if held != self.deployment:
            raise UnusableState(
                f"--state {self.path} holds what was found of {held or 'an unnamed deployment'}, not of "
                f"{self.deployment or 'an unnamed one'}. Give --deployment, or another file."
            )

    @property
    def results(self) -> list[tuple[datetime, Mapping[str, Any]]]:
        """When each result was kept, and the result; what cannot be understood is left out."""
        found = []
        for line in self.lines:
            with suppress(ValueError, TypeError):
                at = datetime.fromisoformat(str(line.get("at")))
                found += [(at, one) for one in line.get("results") or () if isinstance(one, dict)]
        return [(at if at.tzinfo else at.replace(tzinfo=UTC), one) for at, one in found]

    @property
    def evidence(self) -> list[RunEvidence]:
        """What the runs add up to, whatever build they met."""
        found = (run_evidence.read(at, one.get("evidence")) for at, one in self.results)
        return [one for one in found if one is not None]

    @property
    def fixes(self) -> list[datetime]:
        """When somebody said that what was found is mended."""
        return [
            at
            for line in self.lines
            if line.get("fixed")
            for at in [datetime.fromisoformat(str(line["fixed"]))]
        ]

    def markers(self, now: datetime) -> tuple[Marker, ...]:
        """Of the last 30 days: one that surfaces now is a hit as well."""
        return tuple(
            marker
            for at, one in self.results
            if at > now - LIVE
            for marker in live([each for each in one.get("live_markers") or () if isinstance(each, dict)])
        )

    def note_fixed(self, now: datetime) -> None:
        """Record that what earlier runs found is mended."""
        self._append({"fixed": now.isoformat()})

    def add(self, results: Sequence[Result], now: datetime) -> None:
        """Keep what a run found. Raises `UnusableState` where another run has written to the file meanwhile."""
        kept = [
            {
                "check": result.check,
                "verdict": result.verdict.value,
                "evidence": result.measures.get("evidence"),
                "misses": result.measures.get("misses"),
                "live_markers": result.measures.get("live_markers"),
            }
            for result in results
        ]
        self._append({"at": now.isoformat(), "results": kept})

    def _append(self, line: dict[str, Any]) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                if file.read() != self._bytes:
                    raise UnusableState(
                        f"--state {self.path} was written to by another run meanwhile; nothing was kept."
                    )
                added = b""
                if not self._bytes:
                    begun = {"schema": SCHEMA, "says": SAYS, "deployment": self.deployment, "previous": ""}
                    self.lines.append(begun)
                    added = orjson.dumps(begun) + b"\n"
                line["previous"] = _digest((self._bytes + added).splitlines(keepends=True)[-1])
                self.lines.append(line)
                added += orjson.dumps(line) + b"\n"
                file.write(added)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UnusableState(f"--state {self.path} cannot be written ({error.strerror}).") from None
        self._bytes += added


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
