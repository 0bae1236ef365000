"""Checks names of components and conditions against those that advisories speak of.

A misspelt name would decide nothing, silently: an advisory that is never matched. So every name that a
person gives goes through here, and is refused with the name that was meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

from kvaudit.auditor.advisories.load import shipped
from kvaudit.auditor.advisories.pins import engine_id
from kvaudit.auditor.text.quoting import nearest, quoted

PACKAGES = {
    "mooncake-transfer-engine": "mooncake",
    "mooncake-transfer-engine-cuda13": "mooncake",
    "mooncake-transfer-engine-non-cuda": "mooncake",
    "nixl-cu12": "nixl",
    "nixl-cu13": "nixl",
    "ai-dynamo": "dynamo",
    "ai-dynamo-runtime": "dynamo",
    "nvidia-dynamo": "dynamo",
    "text-generation-inference": "tgi",
    "text-generation-server": "tgi",
    "llama-cpp": "llamacpp",
}
"""Names under which a component is installed -> the name that advisories use."""

_READ = ("nixl", "mooncake", "lmcache")
"""Components that engines show of themselves; not every one of them has an advisory."""


@cache
def components() -> frozenset[str]:
    """Engines, connectors and stores whose version an advisory may ask for, or an engine shows."""
    return frozenset(
        {name for advisory in shipped().advisories for name in (advisory.engine, *dict(advisory.pair))}
        | set(_READ)
    )


@cache
def conditions() -> frozenset[str]:
    """What an advisory may ask; a component's name says that it is there."""
    return components() | {
        condition for advisory in shipped().advisories for condition in advisory.conditions
    }


def component(name: str) -> str:
    """The name that advisories use, for a component as people or packages spell it. ValueError with a
    sentence when no advisory knows it."""
    plain = re.sub(r"[-_.]+", "-", engine_id(name))
    found = PACKAGES.get(plain, engine_id(plain))
    if found not in components():
        raise ValueError(_unknown("component", name, [*components(), *PACKAGES]))
    return found


def condition(name: str) -> str:
    """The name as it is. ValueError with a sentence when no advisory asks for it."""
    text = name.strip()
    if text not in conditions():
        raise ValueError(_unknown("condition", name, conditions()))
    return text


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else "kvaudit advisories list --json shows those that there are."
    return f"No advisory knows the {what} {quoted(name)}, so it would decide nothing; {hint}"
