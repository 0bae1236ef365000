"""Builds TLS contexts, only when a node uses https, and shares them among nodes with the same files.

Building one costs about 60 ms, more than a whole audit of a plain http node. On the command line any path may
be given; in the server a file is a bare name in one folder, because whoever describes a node there must neither
read the server's files nor use another team's certificate. In both a device, a FIFO or a huge file is a
sentence: it is looked at before it is opened, and opening and reading never wait.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from kvaudit.auditor.transport.errors import TLSFailed

log = logging.getLogger(__name__)

LARGEST = 2 * 2**20
"""Bytes of one file; the CA bundle of a whole operating system has a quarter of a megabyte."""

BARE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\Z")
"""What a file may be called in the server: no folder, nothing hidden, nothing above."""

_SERVER_SENTENCE = (
    "The TLS files of this node ({names}) cannot be used. On this server each is the bare name of a PEM file in "
    "the folder of the deployment's team below KVAUDIT_TLS_FOLDER: whoever runs kvaudit puts it there, and finds "
    "the reason in the worker's log."
)
_FLAGS = os.O_RDONLY
for _name in ("O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY"):  # the gate also runs where they do not exist
    _FLAGS |= getattr(os, _name, 0)
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"

Stamp = tuple[int, int, int]


def context(
    ca_file: str = "", client_cert: str = "", client_key: str = "", folder: str | None = None
) -> ssl.SSLContext:
    """A verifying context; with ``ca_file`` only that CA is trusted, else the system's. May wait for a disk: call it
    beside the event loop.

    ``folder`` is the only place that files are taken from ("" = there is none); None, on the command line, takes
    any path. Files are read again when they change, so a long-running worker follows a rotation. `TLSFailed` when
    a file is missing or unusable; with a folder in the same words for every reason, which only the log is told.
    """
    names = (ca_file, client_cert, client_key)
    try:
        paths = tuple(_path_of(name, folder) if name else "" for name in names)
        stamps = tuple(_stamp(path) if path else None for path in paths)
        return _build(paths, stamps, folder is not None)
    except TLSFailed as problem:
        if folder is None:
            raise
        log.warning("TLS files of a node cannot be used: %s", problem)
        shown = ", ".join(repr(name[:200]) for name in names if name)
        raise TLSFailed(_SERVER_SENTENCE.format(names=shown)) from None


def _path_of(name: str, folder: str | None) -> str:
    """The file itself, links followed; with a folder only what truly lies in it."""
    if folder is None:
        return name
    if not folder:
        raise TLSFailed(f"{name!r} was named, and KVAUDIT_TLS_FOLDER is not set.")
    if not BARE_NAME.match(name):
        raise TLSFailed(f"{name!r} is no bare name of a file in {folder}.")
    try:
        home = Path(folder).resolve(strict=True)
        path = (home / name).resolve(strict=True)  # reads links, opens nothing
        itself = Path(folder).parent.resolve(strict=True) / Path(folder).name
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise TLSFailed(f"{folder}/{name} cannot be found ({_reason(error)}).") from None
    if home != itself:
        raise TLSFailed(f"{folder} is a link to {home}; make it a folder.")
    if not path.is_relative_to(home):
        raise TLSFailed(f"{folder}/{name} is a link out of its folder, to {path}.")
    return str(path)


def _stamp(path: str) -> Stamp:
    """Which state of which file this is; `TLSFailed` for what must not be opened."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as error:
        raise TLSFailed(f"The TLS file {path} cannot be read ({_reason(error)}).") from None
    return _checked(path, found)


def _checked(path: str, found: os.stat_result) -> Stamp:
    if not stat.S_ISREG(found.st_mode):
        raise TLSFailed(f"The TLS file {path} is no regular file, so it was not opened.")
    if found.st_size > LARGEST:
        raise TLSFailed(
            f"The TLS file {path} has {found.st_size:,} bytes; certificates and keys are taken up to {LARGEST:,}."
        )
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read(path: str, stamp: Stamp | None, in_folder: bool) -> bytes:
    """The file, provided that it is still the one that was looked at."""
    try:
        handle = os.open(path, _FLAGS | (getattr(os, "O_NOFOLLOW", 0) if in_folder else 0))
        with os.fdopen(handle, "rb", buffering=0) as file:
            if _checked(path, os.fstat(handle)) != stamp:
                raise TLSFailed(f"The TLS file {path} changed while it was read; it is read again next time.")
            content = b""
            while len(content) <= LARGEST and (part := file.read(LARGEST + 1 - len(content))):
                content += part
    except OSError as error:
        raise TLSFailed(f"The TLS file {path} cannot be read ({_reason(error)}).") from None
    if len(content) > LARGEST:  # /proc says 0 of files without end
        raise TLSFailed(f"The TLS file {path} does not end within {LARGEST:,} bytes.")
    return content


@lru_cache(maxsize=64)
def _build(paths: Sequence[str], stamps: Sequence[Stamp | None], in_folder: bool) -> ssl.SSLContext:
    ca_file, client_cert, client_key = paths
    try:
        trusted = _certificates(_read(ca_file, stamps[0], in_folder)) if ca_file else None
        built = ssl.create_default_context(cadata=trusted)
        if not ca_file and not built.cert_store_stats()["x509_ca"]:
            _trust_certifi(built)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TLSFailed(f"The CA file {ca_file} holds no usable certificate ({error}).") from None
    if client_cert:
        for path, stamp in zip(paths[1:], stamps[1:], strict=True):
            if path:
                _read(path, stamp, in_folder)  # the library opens by path alone, so this is looked at first
        try:
            built.load_cert_chain(client_cert, client_key or None, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TLSFailed(
                f"The client certificate {client_cert} with key {client_key or client_cert} "
                f"cannot be used ({error}); both must be PEM, belong together and have no passphrase."
            ) from None
    return built


def _certificates(content: bytes) -> str:
    """The PEM certificates of a file, without the remarks between them. ValueError when there is none."""
    found: list[str] = []
    start = content.find(_BEGIN)
    while start >= 0:
        end = content.find(_END, start)
        if end < 0:
            break
        found.append(content[start : end + len(_END)].decode("ascii"))
        start = content.find(_BEGIN, end)
    if not found:
        raise ValueError("no BEGIN CERTIFICATE")
    return "\n".join(found) + "\n"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # never prompt: there is nobody at the terminal of a worker


def _trust_certifi(built: ssl.SSLContext) -> None:
    """Slim images have no CA certificates of their own; certifi comes with the HTTP stack."""
    try:
        import certifi
    except ImportError:
        return
    built.load_verify_locations(cafile=certifi.where())
