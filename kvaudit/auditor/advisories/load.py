"""Loads the shipped advisories: edited as ``advisories.yaml``, read from the compiled ``advisories.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

COMPILED = Path(__file__).with_name("advisories.json")


@dataclass(frozen=True, slots=True)
class Advisory:
    """A known bug.

    ``engine`` is an adapter's id or a component's name. ``affected`` and the ranges of ``pair``
    (further components that must be there) are PEP 440, "" where nobody has established one.
    ``conditions`` must all be met; ``circumstances`` are traffic that any shared server sees sooner
    or later. ``effect`` says what is at risk: content, integrity, side channel, access or
    availability. ``verified``: reproduced, source, advisory, thread, press or unverified. ``checks`` is the
    result that each of our checks must give on an affected server.
    """

    id: str
    engine: str
    title: str
    severity: str  # critical, high, medium, low or unknown
    effect: str
    references: tuple[str, ...]
    verified: str
    affected: str = ""
    fixed_in: str = ""
    pair: tuple[tuple[str, str], ...] = ()
    conditions: tuple[str, ...] = ()
    circumstances: tuple[str, ...] = ()
    date: str = ""
    remedy: str = ""
    note: str = ""
    checks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdvisorySet:
    """All advisories of one dated version of the data."""

    version: str
    advisories: tuple[Advisory, ...]
    by_engine: Mapping[str, tuple[Advisory, ...]]  # first named engine or component -> its advisories
    newest: Mapping[str, str] = field(default_factory=dict)  # engine or component -> newest release looked at

    def by_id(self, advisory_id: str) -> Advisory:
        """KeyError when there is none with this id."""
        for advisory in self.advisories:
            if advisory.id == advisory_id:
                return advisory
        raise KeyError(advisory_id)


@cache
def shipped() -> AdvisorySet:
    """The advisories of this release of kvaudit."""
    return parse(json.loads(COMPILED.read_bytes()))


def parse(stored: Mapping[str, Any]) -> AdvisorySet:
    """The compiled form -> `AdvisorySet`; its shape is proved when it is compiled."""
    advisories = tuple(map(_advisory, stored["advisories"]))
    by_engine: dict[str, tuple[Advisory, ...]] = {}
    for advisory in advisories:
        by_engine[advisory.engine] = (*by_engine.get(advisory.engine, ()), advisory)
    return AdvisorySet(str(stored["version"]), advisories, by_engine, dict(stored.get("newest") or {}))


def _advisory(row: Mapping[str, Any]) -> Advisory:
    fields = dict(row)
    for name in ("references", "conditions", "circumstances"):
        fields[name] = tuple(fields.get(name, ()))
    fields["pair"] = tuple(fields.get("pair", {}).items())
    return Advisory(**fields)
