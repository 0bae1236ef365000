"""Defines `Check`, the one description of a check that everything else asks. Plans, gate, states, compliance,
incidents, exposure reports, messages and pages ask the descriptor; none of them keeps a list of checks of its
own, since lists that were kept apart came to disagree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Measures = Mapping[str, Any]

ANY = frozenset({"critical", "high", "medium", ""})
"""Every severity; "" where a fail has none."""


class Meaning(StrEnum):
    """What a fail says about tenants."""

    LEAK = "leak"  # an answer, or a cache, gave one tenant what another had sent
    BOUNDARY = "boundary"  # a limit that keeps tenants apart does not hold; no foreign text was seen
    CONFIGURATION = "configuration"  # a setting, a version or a port: leaks may follow from it


def _no_lengths(measures: Measures) -> Collection[int]:
    return ()


@dataclass(frozen=True, slots=True)
class Check:
    """One check. Instances stand in the ``__init__.py`` of each check's package, beside nothing that is slow to
    import: the gate reads all of them at its start."""

    id: str
    title: str
    why: str
    kind: Literal["passive", "active"]
    """Passive checks read allow-listed addresses; active ones send prompts, one set per deployment at a time."""
    order: int
    """Place in a run and on every page. Among active checks the gentlest comes first, since a hit ends the set."""
    tenants: Literal[0, 1, 2] = 0
    """Tenants whose keys it asks with."""
    packages: tuple[str, ...] = ()
    """Importable names that only kvaudit[stats] installs and that it judges with. Without them it is not asked."""
    name: str = ""
    """What pages and messages call it where the id would mislead."""
    package: str = ""
    """Name of the package below `kvaudit.auditor.checks` where it is not the id."""

    required: bool = False
    """Without it a deployment cannot be *pass*, whatever its plans say (checklist items 1 to 5 rest on it)."""
    gate: bool = False
    """Has to run again after a change of capacity (checklist item 5)."""
    cadence: Literal["hourly", "daily", "nightly"] | None = None
    """The plan that a new deployment gets it in; None where somebody has to ask for it."""
    probed: bool = True
    """Part of `kvaudit probe` without names, where keys allow."""
    opt_in: bool = False
    """Runs only where a plan or a person names it."""
    planned_only: bool = False
    """A fail counts only where a plan runs it; a fail of any other check counts whoever asked."""
    read_at_gate: bool = False
    """The gate reads it itself, now, so an older verdict adds nothing to the gate's answer."""

    leak: frozenset[str] = frozenset()
    """Severities whose fail is a leak (`Meaning.LEAK`)."""
    boundary: frozenset[str] = frozenset()
    """Severities whose fail is a boundary that does not hold (`Meaning.BOUNDARY`), and opens an incident as such."""
    accumulates: bool = False
    """Its runs carry ``measures["evidence"]``, which adds up: state is what all runs of 30 days show together
    (`kvaudit.auditor.stats.accumulated`), whatever the last one says alone."""
    bounds: bool = False
    """Its pass bounds how rare leaks are: an exposure report calls hours *bounded* while all of these hold."""
    replayable: bool = False
    """Takes lengths of an earlier run beside its own, so that a fix can be shown at the very lengths that failed."""
    shows: Literal["", "cause", "outcome"] = ""
    """Its part in the sentence that explains a leak: a condition that leads there, or what came of it."""
    drawn: tuple[str, ...] = ()
    """Measures that the run page draws, instead of listing them."""

    failing_lengths: Callable[[Measures], Collection[int]] = _no_lengths
    """Tokens of the prompts that showed the fail."""
    answered_lengths: Callable[[Measures], Collection[int]] = _no_lengths
    """Tokens of the prompts that got a valid answer or a refusal that counts. Void trials ask nothing."""

    def meaning(self, severity: str) -> Meaning:
        """What a fail with this severity ("" where none was given) says about tenants."""
        if severity in self.leak:
            return Meaning.LEAK
        return Meaning.BOUNDARY if severity in self.boundary else Meaning.CONFIGURATION
