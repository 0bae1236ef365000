"""TLS contexts, built only when a node uses https and shared by all nodes with the same files.

Building one costs about 60 ms, more than a whole audit of a plain http node.
"""

from __future__ import annotations

import ssl
from functools import lru_cache
from pathlib import Path

from kvaudit.transport.errors import TLSFailed


def context(ca_file: str = "", client_cert: str = "", client_key: str = "") -> ssl.SSLContext:
    """A verifying context; with ``ca_file`` only that CA is trusted, else the system's.

    Files are read again when they change, so a long-running worker follows a rotation.
    `TLSFailed` when a file is missing or unusable.
    """
    stamps = tuple(_stamp(path) for path in (ca_file, client_cert, client_key))
    return _build(ca_file, client_cert, client_key, stamps)


def _stamp(path: str) -> int:
    if not path:
        return 0
    try:
        return Path(path).stat().st_mtime_ns
    except OSError as error:
        raise TLSFailed(f"The TLS file {path} cannot be read ({error.strerror}).") from None


@lru_cache(maxsize=64)
def _build(ca_file: str, client_cert: str, client_key: str, stamps: tuple[int, ...]) -> ssl.SSLContext:
    try:
        built = ssl.create_default_context(cafile=ca_file or None)
        if not ca_file and not built.cert_store_stats()["x509_ca"]:
            _trust_certifi(built)
    except (ssl.SSLError, OSError) as error:
        raise TLSFailed(f"The CA file {ca_file} holds no usable certificate ({error}).") from None
    if client_cert:
        try:
            built.load_cert_chain(client_cert, client_key or None, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TLSFailed(
                f"The client certificate {client_cert} with key {client_key or client_cert} "
                f"cannot be used ({error}); both must be PEM, belong together and have no passphrase."
            ) from None
    return built


def _no_password() -> str:
    raise ValueError("the key is encrypted")  # never prompt: there is nobody at the terminal of a worker


def _trust_certifi(built: ssl.SSLContext) -> None:
    """Slim images have no CA certificates of their own; certifi comes with the HTTP stack."""
    try:
        import certifi
    except ImportError:
        return
    built.load_verify_locations(cafile=certifi.where())
