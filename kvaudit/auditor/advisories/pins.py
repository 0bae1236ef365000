"""Parses version pins, the policy which builds are allowed: ``sglang>=0.5.22``, one engine and a PEP 440 range."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from kvaudit.auditor.advisories.versions import Build, holds, parse_range
from kvaudit.auditor.engines import ALIASES
from kvaudit.auditor.text.quoting import quoted

_PIN = re.compile(r"^\s*([A-Za-z][A-Za-z0-9._-]*?)\s*((?:[<>=!~]).*)$")
OTHERS = {"llama.cpp": "llamacpp"}
"""Spellings of engines that advisories name and no adapter reads -> the name in the advisories."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The versions of ``engine`` that policy allows."""

    engine: str
    text: str  # the range: >=0.5.22
    clauses: tuple[tuple[str, Version], ...]

    def __str__(self) -> str:
        return f"{self.engine} {self.text}"

    def allows(self, build: Build) -> bool | None:
        """True, False, or None where the build may lie on either side."""
        return holds(build, self.clauses)


def engine_id(name: str) -> str:
    """The engine's id, of an engine as people write it."""
    lowered = name.strip().lower()
    return ALIASES.get(lowered) or OTHERS.get(lowered, lowered)


def parse_pin(text: str) -> Pin:
    """One pin; ValueError with a sentence when it cannot be read."""
    match = _PIN.match(text)
    if not match:
        raise ValueError(f"The pin {quoted(text)} must be an engine and a range, such as sglang>=0.5.22.")
    try:
        clauses = parse_range(match[2])
    except ValueError as problem:
        raise ValueError(f"The pin {quoted(text)} cannot be read: {problem}.") from None
    return Pin(engine_id(match[1]), match[2].strip(), clauses)


def pins_for(engine: str, pins: Iterable[str]) -> tuple[Pin, ...]:
    """The pins that speak of this engine; a pin for another engine does not apply."""
    return tuple(pin for pin in map(parse_pin, pins) if pin.engine == engine)
