"""Parses URLs, refuses addresses that are never to be touched, and pins connections to the address that was
checked.

Private addresses are allowed: they are where the nodes of our users live. Link-local and cloud metadata
addresses are not (`forbidden_addresses`), under any spelling and also not through DNS, because their
answers are credentials; the rest is the operator's to open and close (`kvaudit.auditor.transport.egress`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpcore

from kvaudit.auditor.transport import egress
from kvaudit.auditor.transport.aside import aside
from kvaudit.auditor.transport.errors import (
    AddressDenied,
    BadURL,
    ConnectionRefused,
    ConnectTimedOut,
    NameNotFound,
    TransportError,
    Unreachable,
)
from kvaudit.auditor.transport.forbidden_addresses import IPAddress, denied_reason

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) -> addresses as text; raises OSError (socket.gaierror) when there is none."""

LONGEST_URL = 2_000


@dataclass(frozen=True, slots=True)
class BaseURL:
    """A node's base URL, taken apart. ``prefix`` is its path without the last slash."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port == usual else f"{host}:{self.port}"

    def __str__(self) -> str:
        return self.origin + self.prefix


def parse_base_url(url: str) -> BaseURL:
    """Take a base URL apart; `BadURL` with a sentence when it is not one.

    A user name or password in it is refused (and not repeated): keys go into headers, from the
    environment. A denied literal address is refused here, before any name is looked up.
    """
    if not isinstance(url, str) or not url.strip():
        raise BadURL("The URL of a node is empty; write it like http://10.0.0.7:30000.")
    text = url.strip()
    shown = repr(text.rpartition("@")[2] if "@" in text else text)[:200]
    if any(ord(char) <= 32 or ord(char) == 127 for char in text):
        raise BadURL(f"The URL {shown} contains spaces or control characters.")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname or ""
    except ValueError as error:
        raise BadURL(
            f"The URL {shown} cannot be read ({error}); write it like http://10.0.0.7:30000."
        ) from None
    if parts.scheme not in ("http", "https"):
        raise BadURL(f"The URL {shown} must begin with http:// or https://.")
    if not host:
        raise BadURL(f"The URL {shown} names no host.")
    if parts.username is not None or parts.password is not None:
        raise BadURL(
            f"The URL for {host} has a user name or password in it; keys belong into an environment "
            "variable named by --api-key-env or headers_env."
        )
    if parts.query or parts.fragment:
        raise BadURL(f"The URL {shown} must be a base URL, without '?' or '#'.")
    if not parts.path.isascii():
        raise BadURL(f"The path in {shown} has characters outside ASCII; write them percent-encoded.")
    if len(text) > LONGEST_URL:
        raise BadURL(f"The URL {shown[:80]}... is longer than {LONGEST_URL:,} characters.")
    if port == 0:
        raise BadURL(f"The URL {shown} has port 0, which nothing can listen on.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise BadURL(f"The host name in {shown} is not valid.") from None
    literal = _literal(host)
    if literal is not None:
        _check(host, literal)
    usual = 443 if parts.scheme == "https" else 80
    return BaseURL(parts.scheme, host, port or usual, parts.path.rstrip("/"))


def origin_of(url: str) -> str:
    """``scheme://host:port`` that a URL leads to, as a connection to it would be made: letters of the
    host in lower case, international names in ASCII, the port always there. "" for a URL that is never
    connected to. Two spellings of one address may still differ; then they count as two."""
    try:
        parts = urlsplit(url.strip())
        return parse_base_url(f"{parts.scheme}://{parts.netloc}").origin
    except (TransportError, ValueError):
        return ""


def _literal(host: str) -> IPAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _check(host: str, address: IPAddress) -> None:
    why = denied_reason(address)
    if why:
        leads = str(address) if host == str(address) else f"{host} leads to {address}, which"
        raise AddressDenied(
            f"{leads} is {why}: kvaudit never connects there. "
            "Give the address that the engine itself listens on."
        )


async def _check_egress(host: str, address: IPAddress, port: int, resolve: Resolve) -> None:
    """Also what the operator's list says of this port (`kvaudit.auditor.transport.egress`)."""
    _check(host, address)
    why = await egress.current().refusal(address, port, resolve)
    if why:
        leads = f"{address}" if _literal(host) == address else f"{host} leads to {address}, which"
        raise AddressDenied(f"{leads} is {why}. Nothing was sent.")


async def system_resolve(host: str, port: int) -> list[str]:
    """getaddrinfo beside the event loop."""

    def look_up() -> list[str]:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:
            raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
        return list(dict.fromkeys(str(row[4][0]) for row in rows))

    return await aside(look_up, "resolve")


async def checked_addresses(host: str, port: int, resolve: Resolve) -> list[str]:
    """The addresses behind a host, all of them checked: one denied address denies the name."""
    literal = _literal(host)
    if literal is not None:
        await _check_egress(host, literal, port, resolve)
        return [str(literal)]
    try:
        found = await resolve(host, port)
    except OSError as error:
        raise NameNotFound(
            f"The name {host} does not resolve ({error.strerror or error}); "
            "check its spelling and the DNS of this machine."
        ) from None
    if not found:
        raise NameNotFound(f"The name {host} resolves to no address.")
    for text in found:
        address = _literal(text)
        if address is None:
            raise NameNotFound(f"The name {host} resolves to {text!r}, which is no address.")
        await _check_egress(host, address, port, resolve)
    return found


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections only to addresses checked here, without a second look-up in between."""

    def __init__(self, resolve: Resolve = system_resolve) -> None:
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        where = f"{host}:{port}"
        failed: TransportError | None = None
        for address in await checked_addresses(host, port, self._resolve):
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
                )
            except httpcore.ConnectTimeout:
                failed = ConnectTimedOut(
                    f"No connection to {where} within {timeout:g} s: "
                    "the machine is down or a firewall drops packets."
                )
            except httpcore.ConnectError as error:
                failed = _connect_failure(where, error)
        assert failed is not None
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise Unreachable("Unix sockets are not audited.")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _connect_failure(where: str, error: BaseException) -> TransportError:
    cause: BaseException | None = error
    reasons: list[str] = []
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError) or "refused" in str(cause).lower():
            return ConnectionRefused(
                f"{where} refused the connection: nothing listens there (not started yet, or another port)."
            )
        if isinstance(cause, OSError) and cause.strerror:
            reasons.append(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    reason = reasons[-1] if reasons else error
    return Unreachable(f"{where} cannot be reached ({reason}); check address and network.")
