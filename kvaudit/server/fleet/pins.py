"""Finds which pins hold for which deployment, and whether what runs there meets them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.advisories.pins import parse_pin
from kvaudit.auditor.advisories.versions import holds, parse_build, parse_range
from kvaudit.auditor.checks.contract import Rules
from kvaudit.server.fleet.models import Pin


@dataclass(frozen=True, slots=True)
class InForce:
    """The pin of one engine that a deployment is judged by. Without ``pin`` it is the shipped one."""

    engine: str
    specifier: str
    pin: Pin | None = None

    @property
    def text(self) -> str:
        return f"{self.engine}{self.specifier}"

    @property
    def scope(self) -> str:
        """Whose it is: ``deployment``, ``fleet`` or ``shipped``."""
        if self.pin is None:
            return "shipped"
        return "fleet" if self.pin.deployment_id is None else "deployment"


class PinState(StrEnum):
    """How a build, or all that runs in a deployment, stands to its pins. Only ``met`` is good."""

    OUTSIDE = "outside"
    UNDECIDED = "undecided"  # the build may lie on either side, or its version is not known
    UNREAD = "unread"
    UNPINNED = "unpinned"  # no pin speaks of the engine
    MET = "met"


_WORST_FIRST = tuple(PinState)


def in_force(pins: Iterable[Pin], deployment_id: int | None) -> Mapping[str, InForce]:
    """Engine -> the pin that holds, out of current ``pins``: a deployment's own goes before the fleet's of the
    same engine, and that before the shipped one. For None: what holds where a deployment has none of its own."""
    found = dict(shipped())
    for scope in (None, deployment_id):
        for pin in pins:
            if pin.deployment_id == scope:
                found[pin.engine] = InForce(pin.engine, pin.specifier, pin)
    return found


@cache
def shipped() -> Mapping[str, InForce]:
    """The pins that come with the release."""
    return {pin.engine: InForce(pin.engine, pin.text) for pin in map(parse_pin, Rules().pins)}


def state_of(version: str, pin: InForce | None) -> PinState:
    """How a build stands to the pin of its engine, as the check ``version`` judges it."""
    if pin is None:
        return PinState.UNPINNED
    try:
        allowed = holds(build_of(pin.engine, version), parse_range(pin.specifier))
    except ValueError:  # written by another release; the check says so as an error
        return PinState.UNDECIDED
    return PinState.UNDECIDED if allowed is None else PinState.MET if allowed else PinState.OUTSIDE


def worst(states: Iterable[PinState]) -> PinState:
    """Of a deployment's builds; `UNREAD` for none."""
    return min(states, key=_WORST_FIRST.index, default=PinState.UNREAD)


def exactly(version: str) -> str:
    """The range that holds this build and no other release: ``==0.5.22``; "" for a build whose version cannot
    be told exactly (a nightly, a vendor's patches, a moving tag)."""
    build = parse_build(version)
    if build.kind not in ("release", "candidate") or build.low is None:
        return ""
    return f"=={build.low}" if build.low == build.high else f">={build.low},<={build.high}"


def why_not(version: str) -> str:
    """Why `exactly` has nothing, as a clause: "is a moving tag, not a version"."""
    return parse_build(version).why or "cannot be compared"
