"""The checks, one module each, registered by decorator; a check is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

CheckClass = TypeVar("CheckClass", bound=type[Any])

PASSIVE = ("pool", "version", "drift", "exposure")
ACTIVE = ("accounting", "rejection", "coherence", "canary", "prefill", "prefix", "concurrency", "session")
"""The gentlest first, since the first verified hit ends a set."""

OPT_IN = ("concurrency", "session")
"""Asked only where a plan or a person names them: the first puts a target under load, the second talks
to an API that a fleet file has to describe."""

LEAK = ("canary", "rejection", "coherence", "concurrency", "prefix", "session")
"""Checks that read answers: their *critical* fail shows one that did not come from its own prompt."""

MODULES = (*PASSIVE, *ACTIVE)

_KEYS = {"none": 0, "one tenant": 1, "two tenants": 2}

_registered: dict[str, Any] = {}


def register(check: CheckClass) -> CheckClass:
    """Class decorator: make the check known under its ``id``."""
    _registered[check.id] = check()
    return check


def get(check_id: str) -> Any:
    """The check with this id; ValueError with a sentence when there is none."""
    if check_id not in MODULES:
        raise ValueError(f"there is no check called {check_id!r}; the checks are {', '.join(MODULES)}")
    import_module(f"kvaudit.auditor.checks.{check_id}")
    return _registered[check_id]


def keys_needed(check_id: str) -> int:
    """Tenants whose keys a check asks with; ValueError as `get`."""
    return _KEYS[get(check_id).needs]
