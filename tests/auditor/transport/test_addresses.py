"""Where kvaudit may connect, in every spelling of an address."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from kvaudit.auditor.transport import AddressDenied, BadURL, Client, Limits, NameNotFound, TransportError
from kvaudit.auditor.transport.addresses import (
    checked_addresses,
    denied_reason,
    parse_base_url,
    system_resolve,
)
from tests import servers


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "240.0.0.1",
    ],
)
def test_denied(address: str) -> None:
    assert denied_reason(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.4", "172.16.0.9", "fd12:3456::1", "100.64.0.1", "8.8.8.8"],
)
def test_allowed(address: str) -> None:
    assert denied_reason(ip_address(address)) == ""


@pytest.mark.parametrize(
    ("url", "origin", "prefix"),
    [
        ("http://10.0.0.7:30000", "http://10.0.0.7:30000", ""),
        ("http://10.0.0.7:30000/", "http://10.0.0.7:30000", ""),
        ("https://node.example/pd/0/", "https://node.example:443", "/pd/0"),
        ("http://[::1]:8000", "http://[::1]:8000", ""),
        ("HTTP://Node:80", "http://node:80", ""),
        ("http://bücher.example", "http://xn--bcher-kva.example:80", ""),
    ],
)
def test_base_url(url: str, origin: str, prefix: str) -> None:
    base = parse_base_url(url)
    assert (base.origin, base.prefix) == (origin, prefix)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "empty"),
        ("10.0.0.7:30000", "must begin with http"),
        ("ftp://10.0.0.7", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("http://", "no host"),
        ("http://a:99999", "cannot be read"),
        ("http://a:0", "port 0"),
        ("http://a?x=1", "base URL"),
        ("http://a/#x", "base URL"),
        ("http://a b", "spaces"),
        ("http://a\r\nHost: b", "control characters"),
        ("http://[::1", "cannot be read"),
        ("http://a/é", "percent-encoded"),
        ("http://a/" + "x" * 2_000, "longer than 2,000"),
    ],
)
def test_bad_url(url: str, says: str) -> None:
    with pytest.raises(BadURL, match=says):
        parse_base_url(url)


@pytest.mark.parametrize("url", ["http://user:hunter2-secret@node:1", "http://u:hunter2-secret@node:99999"])
def test_password_in_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadURL) as caught:
        parse_base_url(url)
    assert "hunter2-secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]", "0.0.0.0"])
def test_literal_is_denied_before_anything_is_sent(host: str) -> None:
    with pytest.raises(AddressDenied):
        Client(f"http://{host}:80", allow=())


def test_name_with_one_denied_address_is_denied() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1", "169.254.169.254"]

    with pytest.raises(AddressDenied, match=r"node\.example leads to 169\.254\.169\.254"):
        asyncio.run(checked_addresses("node.example", 80, resolve))


@pytest.mark.parametrize("spelling", ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376"])
def test_other_spellings_of_an_address_are_resolved_and_denied(spelling: str) -> None:
    """inet_aton forms are no literals for Python, but getaddrinfo takes them."""
    with pytest.raises(AddressDenied):
        asyncio.run(checked_addresses(spelling, 80, system_resolve))


def test_connection_goes_to_the_checked_address_without_second_lookup() -> None:
    lookups: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"] if len(lookups) == 1 else ["169.254.169.254"]

    async def main() -> None:
        async with (
            servers.serving(servers.html()) as server,
            Client(f"http://rebind.example:{server.port}", allow={("GET", "/")}, resolve=resolve) as client,
        ):
            assert (await client.get("/")).status == 200
            assert server.requests[0].headers["host"] == f"rebind.example:{server.port}"

    asyncio.run(main())
    assert lookups == ["rebind.example"]


def test_second_address_is_tried_when_the_first_refuses() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async def main() -> int:
        async with (
            servers.serving(servers.html()) as server,
            Client(f"http://two.example:{server.port}", allow={("GET", "/")}, resolve=resolve) as client,
        ):
            return (await client.get("/")).status

    assert asyncio.run(main()) == 200


def test_unknown_name_is_a_sentence() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(NameNotFound, match=r"nowhere\.example does not resolve"):
        asyncio.run(checked_addresses("nowhere.example", 80, resolve))


def test_a_resolver_that_hangs_ends_at_the_deadline() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def main() -> None:
        limits = Limits(total=0.05)
        async with Client(
            "http://slow.example", allow={("GET", "/")}, resolve=resolve, limits=limits
        ) as client:
            await client.get("/")

    with pytest.raises(TransportError, match=r"within 0\.05 s"):
        asyncio.run(main())
