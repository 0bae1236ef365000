"""Says what a row of the matrix is: an engine, and what each check must find on it.

An engine is faults, flavour and settings, with the roles read with their own key. An expectation is one or more
verdicts joined by ``|``; ``not pass`` is every verdict but that. A check that a row does not name must
*pass*: silence on a healthy part of a sick engine is an assertion too (a clean cache audit would not have
found the incident).

Expectations are what the specification wants. Where a check does not bring it yet, its cell is *open*: it is
shown and counted, it does not fail while it differs, and it fails when it agrees, so that the mark goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvaudit.lab.faults import known
from kvaudit.lab.faults.base import Nature

NOT_APPLICABLE: Mapping[str, str] = {"session": "the lab serves no session API"}
"""Checks that have nothing to ask here, and why. They are shown and not counted."""

ENLARGED: Mapping[str, Any] = {"prefill_pool": 16_384}
SMALL: Mapping[str, Any] = {}
COMPACT: Mapping[str, Any] = {"context": 4_096, "prefill_pool": 8_192, "decode_pool": 5_632}
"""Everything at half the size: enough for what does not hang on the pool's ratio, in half the time."""

COMPACT_SMALL: Mapping[str, Any] = {"context": 4_096, "prefill_pool": 2_672, "decode_pool": 5_520}
"""The same with the incident's ratio of pool to context."""

ROLL_UP = "(roll-up)"
"""The column of all checks together."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """One engine of the matrix with the verdicts that its checks must give. ``roll_up`` is the verdict of all
    checks together that must not be *pass* where it says so; ``open`` names the checks whose verdict is not
    yet what is wanted, and what each lacks."""

    name: str
    faults: tuple[str, ...]
    expected: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=lambda: ENLARGED)
    roll_up: str = ""
    requests_between: int = 0  # ordinary requests between the first reading and the checks
    open: Mapping[str, str] = field(default_factory=dict)

    def expects(self, check: str) -> str:
        return self.expected.get(check, "pass")

    @property
    def natures(self) -> frozenset[Nature]:
        return frozenset(known()[fault].nature for fault in self.faults)

    @property
    def healthy(self) -> bool:
        """Nobody is harmed: a *fail* that is not expected is a false one."""
        return self.natures == {Nature.HEALTHY}

    @property
    def together(self) -> str:
        """What all checks together must say, "" for nothing: whatever leaks must not pass everywhere."""
        return self.roll_up or ("not pass" if Nature.LEAKS in self.natures else "")
