"""Refuses addresses that are never connected to, under any spelling: what answers there are credentials, or
nothing.

No setting opens them. What an operator opens and closes beyond that is `kvaudit.auditor.transport.egress`.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

IPAddress = IPv4Address | IPv6Address

_DENIED = tuple(
    (ip_network(network), why)
    for network, why in (
        ("169.254.0.0/16", "link-local, where clouds serve instance credentials"),
        ("fe80::/10", "link-local"),
        ("fd00:ec2::/32", "the metadata service of AWS"),
        ("fd20:ce::254/128", "the metadata service of Google Cloud"),
        ("100.100.100.200/32", "the metadata service of Alibaba Cloud"),
        ("192.0.0.192/32", "the metadata service of Oracle Cloud"),
        ("168.63.129.16/32", "the platform service of Azure"),
        ("0.0.0.0/8", "no destination"),
        ("::/128", "no destination"),
        ("224.0.0.0/4", "multicast"),
        ("ff00::/8", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
    )
)
_AT_THE_END = (
    IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
    IPv6Network("64:ff9b:1::/48"),  # NAT64 of one's own network (RFC 8215), as /96
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated, SIIT (RFC 2765)
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = IPv6Network("::/96")
_ISATAP, _ISATAP_BITS = (
    0x0000_5EFE,
    0xFCFF_FFFF,
)  # the interface identifier without its u and g bits (RFC 5214)


def denied_reason(address: IPAddress) -> str:
    """Why this address is never connected to; "" when it may be. IPv4 inside IPv6 (mapped, compatible,
    translated, NAT64, 6to4, Teredo, ISATAP) is judged by the IPv4 address it reaches."""
    for inner in embedded(address):
        why = denied_reason(inner)
        if why:
            return why
    for network, why in _DENIED:
        if address.version == network.version and address in network:
            return why
    return ""


def embedded(address: IPAddress) -> Iterable[IPv4Address]:
    """The IPv4 addresses that an IPv6 address may lead to; none for IPv4."""
    if not isinstance(address, IPv6Address):
        return
    number = int(address)
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    isatap = (number >> 32) & _ISATAP_BITS == _ISATAP
    compatible = address in _COMPATIBLE and number > 0xFFFF
    if isatap or compatible or any(address in network for network in _AT_THE_END):
        yield IPv4Address(number & 0xFFFF_FFFF)
    if address in _LOCAL_NAT64:  # as /48, the IPv4 address lies around bits 64 to 71 (RFC 6052, 2.2)
        yield IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
