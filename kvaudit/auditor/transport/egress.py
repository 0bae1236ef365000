"""Decides where the operator lets kvaudit connect: one policy for the process, asked by the one pinned backend.

On the command line everything is open that `forbidden_addresses` does not close: whoever types the
address owns the machine. In the server the addresses come from people who may not be trusted with what listens
on its own host, so there the host itself, loopback, the machine underneath a container and kvaudit's own
services are closed until ``EGRESS_ALLOW`` names them, and ``EGRESS_DENY`` closes more.

Of the operator's rules that fit, the narrowest decides (longest network, then named ports), and a draw closes:
so ``EGRESS_DENY=0.0.0.0/0,[::]/0`` with ``EGRESS_ALLOW=10.1.0.0/16`` leaves one network, and a wide allowance
never opens a narrower closed door by accident.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

from kvaudit.auditor.transport.forbidden_addresses import IPAddress, embedded
from kvaudit.auditor.transport.rules import Rule

Resolve = Callable[[str, int], Awaitable[list[str]]]
Named = Mapping[str, Collection[IPAddress]]

REMEMBERED = 30.0
"""Seconds that the addresses of a name in a rule are remembered; containers move when they are restarted."""
PATIENCE = 2.0
"""Seconds for looking such a name up: a rule must not eat the deadline of what it guards."""

_LOOPBACK: tuple[IPv4Network | IPv6Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_ROUTES = Path("/proc/net/route")


@dataclass(frozen=True, slots=True)
class Policy:
    """``allow`` and ``deny`` are the operator's. ``own`` are (host, port) of kvaudit's own services: those doors
    no rule opens, and other ports of their hosts are closed like this machine's. ``guarded`` is True in the
    server; without it nothing here closes anything. ``more`` are allowances that come and go (the lab's ports)."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    own: tuple[tuple[str, int], ...] = ()
    guarded: bool = False
    more: Callable[[], Sequence[Rule]] = tuple
    _known: dict[str, tuple[float, frozenset[IPAddress]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    async def refusal(self, address: IPAddress, port: int, resolve: Resolve) -> str:
        """Why this address must not be connected to at this port, as the end of a sentence; "" when it may."""
        if not self.guarded:
            return ""
        names = {rule.name for rule in (*self.allow, *self.deny) if rule.name} | {
            host for host, _ in self.own
        }
        looked_up = await asyncio.gather(*(self._addresses(name, resolve) for name in sorted(names)))
        return self._first_refusal(address, port, dict(zip(sorted(names), looked_up, strict=True)))

    def refusal_now(self, host: str, port: int) -> str:
        """The same for a host that is an address in any spelling, or ``localhost``, without looking up anything;
        "" for other names: they are judged when they are connected to."""
        address = spelled(host)
        if address is None or not self.guarded:
            return ""
        named = {name: addresses for name, (_, addresses) in self._known.items()}
        for own, _ in self.own:
            if (literal := spelled(own)) is not None:
                named[own] = frozenset((literal,))
        return self._first_refusal(address, port, named)

    def _first_refusal(self, address: IPAddress, port: int, named: Named) -> str:
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        meant = [mapped] if mapped is not None else [address, *embedded(address)]
        return next((why for each in meant if (why := self._refusal(each, port, named))), "")

    def _refusal(self, address: IPAddress, port: int, named: Named) -> str:
        rule_text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
        if self._is_own_service(address, port, named):
            return "one of kvaudit's own services, which it never connects to for an audit or a message"
        allowed = _narrowest((*self.allow, *self.more()), address, port, named)
        denied = _narrowest(self.deny, address, port, named)
        if denied is not None and (allowed is None or denied.weight(address) >= allowed.weight(address)):
            return f"closed by EGRESS_DENY ({denied.text}) of whoever runs kvaudit"
        closed, width = self._closed(address, named)
        if closed and (allowed is None or allowed.weight(address)[0] < width):
            return (
                f"{closed}, where kvaudit connects only if whoever runs it says so: add {rule_text} to EGRESS_ALLOW "
                "in kvaudit's environment and start it again"
            )
        return ""

    def _is_own_service(self, address: IPAddress, port: int, named: Named) -> bool:
        here = _is_here(address)
        for host, own_port in self.own:
            if port != own_port:
                continue
            addresses = named.get(host, ())
            if address in addresses or (
                here and any(each.is_unspecified or _is_here(each) for each in addresses)
            ):
                return True
        return False

    def _closed(self, address: IPAddress, named: Named) -> tuple[str, int]:
        """What is closed until it is allowed, and how narrow an allowance must be: (why, prefix length)."""
        for network in _LOOPBACK:
            if address.version == network.version and address in network:
                return "the loopback of kvaudit's own machine", network.prefixlen
        if is_own(address):
            return "an address of kvaudit's own machine", address.max_prefixlen
        if address == gateway():
            return (
                "the gateway of kvaudit's network (in a container: the machine underneath)",
                address.max_prefixlen,
            )
        if any(address in named.get(host, ()) for host, _ in self.own):
            return "the host of kvaudit's database, broker or web", address.max_prefixlen
        return "", 0

    async def _addresses(self, name: str, resolve: Resolve) -> frozenset[IPAddress]:
        """Where a name leads; while it cannot be looked up, where it led before, and the next connection asks again. A
        name that never led anywhere closes nothing: services of one's own that are not there are no reason to stop
        every audit."""
        literal = spelled(name)
        if literal is not None:
            return frozenset((literal,))
        asked, known = self._known.get(name, (float("-inf"), frozenset()))
        if time.monotonic() - asked < REMEMBERED:
            return known
        try:
            found = await asyncio.wait_for(resolve(name, 0), PATIENCE)
            known = frozenset(map(ip_address, found))
        except (OSError, ValueError):  # TimeoutError is an OSError
            return known
        self._known[name] = (time.monotonic(), known)
        return known


OPEN = Policy()
_installed = OPEN


def install(policy: Policy) -> Policy:
    """Make this the policy of the process; returns the one before."""
    global _installed
    before, _installed = _installed, policy
    return before


def current() -> Policy:
    return _installed


def spelled(host: str) -> IPAddress | None:
    """The address that a host spells: as literal, as ``localhost``, or in one of the old forms that getaddrinfo
    takes (2130706433, 0x7f.1, 0177.0.0.1). None for a name."""
    text = host.strip("[]").rstrip(".").lower()
    try:
        return ip_address(text)
    except ValueError:
        pass
    if text == "localhost" or text.endswith(".localhost"):
        return IPv4Address("127.0.0.1")
    if text and set(text) <= set("0123456789abcdefx."):
        try:
            return IPv4Address(socket.inet_aton(text))
        except OSError:
            return None
    return None


def is_own(address: IPAddress) -> bool:
    """Whether an interface of this machine holds the address now: only then does the kernel bind to it."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            if not _binds_anything():
                probe.bind((str(address), 0))
                return True
            probe.connect((str(address), 9))  # UDP: sends nothing, but the kernel chooses a source
            return bool(ip_address(probe.getsockname()[0]) == address)
    except OSError:
        return False


@lru_cache(maxsize=1)
def _binds_anything() -> bool:
    """Whether binding tells nothing here (net.ipv4.ip_nonlocal_bind, as failover machines set it)."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("192.0.2.1", 0))  # TEST-NET-1: nobody's
    except OSError:
        return False
    return True


def gateway() -> IPv4Address | None:
    """The default gateway, where Linux tells it."""
    try:
        rows = [line.split() for line in _ROUTES.read_text(encoding="ascii").splitlines()[1:]]
        return next((IPv4Address(bytes.fromhex(row[2])[::-1]) for row in rows if row[1] == "00000000"), None)
    except (OSError, ValueError, IndexError):
        return None


def _is_here(address: IPAddress) -> bool:
    return any(address.version == network.version and address in network for network in _LOOPBACK) or is_own(
        address
    )


def _narrowest(rules: Iterable[Rule], address: IPAddress, port: int, named: Named) -> Rule | None:
    fitting = [rule for rule in rules if rule.fits(address, port, named)]
    return max(fitting, key=lambda rule: rule.weight(address), default=None)
