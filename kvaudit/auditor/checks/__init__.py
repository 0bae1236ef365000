"""Finds the checks, a package each: ``__init__.py`` describes it (`descriptor.Check`), ``probe.py`` asks,
``verdict.py`` judges. They are found by looking into this folder, so there is no list to keep.

Descriptors are read here at once; what asks is imported when it is asked for.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvaudit.auditor.checks.descriptor import Check, Meaning, Measures

if TYPE_CHECKING:
    from kvaudit.auditor.checks.contract import Probe


def _found() -> Iterator[Check]:
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            check: Check = import_module(f"{__name__}.{module.name}").CHECK
            if (check.package or check.id) != module.name:
                raise ValueError(
                    f"the package {module.name} describes {check.id!r}: say package={module.name!r}"
                )
            yield check


CHECKS: Mapping[str, Check] = {check.id: check for check in sorted(_found(), key=lambda check: check.order)}
"""Id -> descriptor, in the order in which a run asks and a page shows them."""

MODULES = tuple(CHECKS)
PASSIVE = tuple(check.id for check in CHECKS.values() if check.kind == "passive")
ACTIVE = tuple(check.id for check in CHECKS.values() if check.kind == "active")
INCIDENT = tuple(check.id for check in CHECKS.values() if check.leak or check.boundary)
"""Checks whose fails open incidents: those that can show a leak, or a boundary that does not hold."""


def where(wanted: str, value: object = True) -> tuple[str, ...]:
    """Ids of the checks whose descriptor has ``value`` under the name ``wanted``, in order."""
    return tuple(check.id for check in CHECKS.values() if getattr(check, wanted) == value)


def describe(check_id: str) -> Check:
    """The descriptor; ValueError with a sentence where there is no such check."""
    if check_id not in MODULES:
        sentence = no_such(check_id)
        raise ValueError(sentence[0].lower() + sentence[1:].rstrip("."))
    return CHECKS[check_id]


def no_such(name: str) -> str:
    """The sentence for a name that is no check's. What could be a key is not repeated."""
    from kvaudit.auditor.text.quoting import nearest, quoted  # seldom needed

    near = nearest(name, MODULES)
    known = f"did you mean {near}?" if near else f"the checks are {', '.join(MODULES)}."
    return f"There is no check called {quoted(name)}; {known}"


def get(check_id: str) -> Probe[Any]:
    """What asks and judges (`contract.Probe`), imported now. ValueError as `describe`."""
    check = describe(check_id)
    probe: Probe[Any] = import_module(f"{__name__}.{check.package or check.id}.probe").PROBE
    return probe


def label(check_id: str) -> str:
    """What a person reads: the check's name, else its id, of a check of another release too."""
    return (CHECKS[check_id].name if check_id in CHECKS else "") or check_id


def keys_needed(check_id: str) -> int:
    """Tenants whose keys a check asks with; ValueError as `describe`."""
    return describe(check_id).tenants


def meaning(check_id: str, severity: str) -> Meaning:
    """What a fail says about tenants. A check of another release, which this one does not know, is taken at its
    severity: *critical* is a leak."""
    if check_id in CHECKS:
        return CHECKS[check_id].meaning(severity)
    return Meaning.LEAK if severity == "critical" else Meaning.CONFIGURATION


def failing_lengths(check_id: str, measures: Measures) -> list[int]:
    """Tokens of the prompts that showed a fail, ascending; [] where the check names none."""
    found = CHECKS[check_id].failing_lengths(measures) if check_id in CHECKS else ()
    return sorted({length for length in found if length > 0})


def answered_lengths(check_id: str, measures: Measures) -> set[int]:
    """Tokens of the prompts of a run that got a valid answer or a refusal that counts."""
    return set(CHECKS[check_id].answered_lengths(measures)) if check_id in CHECKS else set()
