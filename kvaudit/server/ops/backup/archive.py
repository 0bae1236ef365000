"""The file of a backup: a tar with the dump and, after it, the manifest with the dump's digest.

It appears under its name when it is whole: an interrupted one goes, a killed one stays ``.NAME.*.part``. ``tar -x``
and pg_restore open it without kvaudit.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.backup.manifest import Manifest

DUMP, MANIFEST, DIGEST = "database.dump", "manifest.json", "manifest.sha256"
_PIECE = 1 << 20
_LARGEST_MANIFEST = 8 << 20  # bytes


def write(path: Path, manifest: Manifest, produce: Callable[[Callable[[bytes], None]], None]) -> Manifest:
    """Write what ``produce`` hands on, then the manifest, which is returned with size and digest. Raises what
    ``produce`` raises, OSError, and `BackupFault` for a file that is there."""
    if path.exists() or path.is_symlink():
        raise BackupFault(f"{path} is there already: give another name, an old backup is never written over.")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")  # two at once must not share one
    try:
        with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
            file.write(bytes(tarfile.BLOCKSIZE))
            digest, size = hashlib.sha256(), 0

            def take(piece: bytes) -> None:
                nonlocal size
                file.write(piece)
                digest.update(piece)
                size += len(piece)

            produce(take)
            whole = replace(manifest, dump_bytes=size, sha256=digest.hexdigest())
            file.write(bytes(-size % tarfile.BLOCKSIZE))
            text = whole.as_json()
            file.write(_member(MANIFEST, text) + _member(DIGEST, _digest_line(text)))
            file.write(bytes(2 * tarfile.BLOCKSIZE))
            file.seek(0)
            file.write(_header(DUMP, size))
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # unlike a rename, it never takes the place of a file that came meanwhile
        _sync_folder(path.parent)
    except FileExistsError:
        raise BackupFault(f"{path} is there already: give another name.") from None
    finally:
        part.unlink(missing_ok=True)
    return whole


def _digest_line(text: bytes) -> bytes:
    """As sha256sum writes and checks it."""
    return f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode()


def _member(name: str, content: bytes) -> bytes:
    return _header(name, len(content)) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.GNU_FORMAT)  # sizes beyond 8 GB too


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems have no such thing
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class Archive:
    """A backup whose digest was compared."""

    path: Path
    manifest: Manifest
    offset: int

    @contextmanager
    def dump(self) -> Iterator[Iterator[bytes]]:
        """The dump in pieces."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            yield _pieces(file, self.manifest.dump_bytes)


def opened(path: Path) -> Archive:
    """Read the manifest and compare the digest. Raises `BackupFault` for what is missing, damaged or something else."""
    try:
        with path.open("rb") as file:
            try:
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    dump, text, digest_line = _members(tar)
            except tarfile.TarError:
                raise BackupFault(f"{path} is not a backup that kvaudit made.{_what_it_is(path)}") from None
            if dump is None:
                raise BackupFault(f"{path} is not a backup that kvaudit made: it holds no {DUMP}.")
            if text is None or digest_line is None:
                raise BackupFault(
                    f"{path} is damaged: it ends before its manifest, so it was cut off. Take another backup."
                )
            if digest_line != _digest_line(text):
                raise BackupFault(
                    f"{path} is damaged: its manifest is not the one that was written. Take another backup."
                )
            manifest = Manifest.from_json(text)
            file.seek(dump.offset_data)
            digest = hashlib.sha256()
            for piece in _pieces(file, dump.size):
                digest.update(piece)
            if dump.size != manifest.dump_bytes or digest.hexdigest() != manifest.sha256:
                raise BackupFault(
                    f"{path} is damaged: its dump is not the one that was written. Take another backup."
                )
            return Archive(path, manifest, dump.offset_data)
    except BackupFault as fault:
        raise BackupFault(
            str(fault) if str(path) in str(fault) else f"{path} cannot be used. {fault}"
        ) from None
    except OSError as error:
        raise BackupFault(f"{path} cannot be read: {error.strerror or error}.") from None


def _members(tar: tarfile.TarFile) -> tuple[tarfile.TarInfo | None, bytes | None, bytes | None]:
    """The dump's place, the manifest and its digest; None for what a file that was cut off has not."""
    dump, texts = None, dict[str, bytes]()
    try:
        for member in tar:
            if member.name == DUMP and member.isreg():
                dump = member
            if member.name in (MANIFEST, DIGEST) and member.isreg() and member.size <= _LARGEST_MANIFEST:
                taken = tar.extractfile(member)
                texts[member.name] = taken.read() if taken else b""
    except tarfile.TarError:
        if dump is None:
            raise
    return dump, texts.get(MANIFEST), texts.get(DIGEST)


def _what_it_is(path: Path) -> str:
    with path.open("rb") as file:
        if file.read(5) == b"PGDMP":
            return " It is a dump of pg_dump alone: docs/backup.md says how to load one."
    return ""


def _pieces(file: IO[bytes] | io.BufferedReader, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(_PIECE, size))):
        size -= len(piece)
        yield piece
