"""Parses rules of the egress list: a network, an address or a name, with or without ports."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from kvaudit.auditor.transport.forbidden_addresses import IPAddress

_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_NAME = re.compile(r"(?=[^.]*[a-z_-]|.*\.[a-z])[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?")
_HOW = "write it like 10.1.0.0/16, 10.1.2.3:30000-30100, [fd00::/8]:8000 or host.example:8000"


class BadRule(ValueError):
    """No rule; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``network`` or ``name`` says where, ``ports`` (lowest, highest) which; None = every port. ``text`` is as the
    operator wrote it."""

    text: str
    network: IPv4Network | IPv6Network | None = None
    name: str = ""
    ports: tuple[int, int] | None = None

    def fits(self, address: IPAddress, port: int, named: Mapping[str, Collection[IPAddress]]) -> bool:
        if self.ports is not None and not self.ports[0] <= port <= self.ports[1]:
            return False
        if self.network is None:
            return address in named.get(self.name, ())
        return address.version == self.network.version and address in self.network

    def weight(self, address: IPAddress) -> tuple[int, bool]:
        """How narrow it is: prefix length in bits, then whether it names ports."""
        bits = address.max_prefixlen if self.network is None else self.network.prefixlen
        return bits, self.ports is not None


def parse_rule(text: str) -> Rule:
    """``10.0.0.0/8``, ``10.1.2.3:8000``, ``[fd00::/8]:8000-8010``, ``host.example:443``. Raises `BadRule`."""
    place, ports = _apart(text.strip())
    if _looks_like_address(place):
        try:
            return Rule(text, network=ip_network(place.replace("[", "").replace("]", "")), ports=ports)
        except ValueError as problem:
            raise BadRule(f"{text[:80]!r} is no rule ({problem}): {_HOW}.") from None
    if not _NAME.fullmatch(place.lower()):
        raise BadRule(f"{text[:80]!r} is no rule: {_HOW}.")
    return Rule(text, name=place.lower(), ports=ports)


def _apart(text: str) -> tuple[str, tuple[int, int] | None]:
    """Where, and the ports."""
    place, colon, tail = text.rpartition(":")
    bare_ipv6 = text.count(":") > 1 and "[" not in text
    if bare_ipv6 and _is_address(text) and _is_address(place):
        raise BadRule(
            f"{text!r} can be read in two ways: write [{text}] for that address, or [{place}]:{tail} for a port."
        )
    if bare_ipv6 or not colon or "]" in tail:
        return text, None
    match = _PORTS.fullmatch(tail)
    low = int(match[1]) if match else 0
    high = int(match[2] or match[1]) if match else 0
    if not 0 < low <= high <= 65535:
        raise BadRule(f"{text[:80]!r} has no usable ports (1 to 65535, or a range like 8000-8010): {_HOW}.")
    return place, (low, high)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _looks_like_address(place: str) -> bool:
    return "/" in place or ":" in place or "[" in place or not place.strip("0123456789.")
