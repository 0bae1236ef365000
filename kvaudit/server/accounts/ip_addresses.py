"""Reduces addresses to what is counted and shown: whoever has one IPv6 address has 2^64 of them."""

from __future__ import annotations

import ipaddress


def bucket_of(address: str) -> str:
    """The IPv4 address itself, the /64 of an IPv6 address, "unknown" for what is neither. IPv4 written as IPv6 is
    IPv4."""
    text = address.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:  # some proxies add the port
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, 64), strict=False))
        found = found.ipv4_mapped
    return str(found)
