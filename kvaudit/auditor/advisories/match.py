"""Decides which advisories apply to a process, and how sure that is.

An advisory **applies** when every range that it names holds and every condition is met. It is
**undecided** when exactly what would decide it can be asked for: one range or some conditions. It is
**possible** when no range has been established for it, or when neither the version of its component
nor its conditions are known: listed with a warning, since otherwise nothing could ever pass. What
only endangers availability is never more than possible here: this product judges isolation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from kvaudit.auditor.advisories.load import Advisory, shipped
from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.advisories.versions import Build, in_range, parse_build

Outcome = Literal["applies", "undecided", "possible", "not"]

INFORMATION_ONLY = frozenset({"availability"})


@dataclass(frozen=True, slots=True)
class Subject:
    """One process: its engine and build, its components with their versions ("" = not told), and
    what is known about a condition (True, False or None)."""

    engine: str
    build: Build
    components: Mapping[str, str] = field(default_factory=dict)
    answer: Callable[[str], bool | None] = lambda condition: None


@dataclass(frozen=True, slots=True)
class Match:
    """How one advisory stands to a subject. ``asks`` are the conditions to read or declare, ``why``
    a clause on a version that could not be decided ("" where it could)."""

    advisory: Advisory
    outcome: Outcome
    asks: tuple[str, ...] = ()
    why: str = ""


def affects(advisory_id: str, engine: str, version: str | None) -> bool | None:
    """Whether the version range of one advisory holds for this engine and version; conditions are
    not looked at. None for another engine (nobody has looked), a build in doubt or no range."""
    advisory = shipped().by_id(advisory_id)
    if advisory.engine != engine or not advisory.affected:
        return None
    return range_holds(build_of(engine, version), advisory.affected)


def range_holds(build: Build, text: str) -> bool | None:
    """As `in_range`, but a vendor's build inside a range is in doubt: it may carry the fix."""
    return _range_holds(build.text, text) if build.known else None


@lru_cache(maxsize=8192)
def _range_holds(version: str, text: str) -> bool | None:
    """By texts, since a sweep asks the same few hundred pairs for every node."""
    build = parse_build(version)
    holds = in_range(build, text)
    return None if holds and build.kind == "vendor" else holds


def match(advisory: Advisory, subject: Subject) -> Match:
    """How ``advisory`` stands to ``subject``."""
    named = ((advisory.engine, advisory.affected), *advisory.pair)
    if not all(_present(name, subject) for name, _ in named):
        return Match(advisory, "not")
    ranges = [(name, text, _range(name, text, subject)) for name, text in named if text]
    if any(holds is False for _, _, holds in ranges):
        return Match(advisory, "not")
    answers = {condition: subject.answer(condition) for condition in advisory.conditions}
    if False in answers.values():
        return Match(advisory, "not")
    asks = tuple(condition for condition, answer in answers.items() if answer is None)
    doubts = [name for name, _, holds in ranges if holds is None]
    why = "; ".join(_doubt(name, subject) for name in doubts)
    if not advisory.affected or advisory.effect in INFORMATION_ONLY:
        return Match(advisory, "possible", asks, why)
    if not asks and not doubts:
        return Match(advisory, "applies")
    if asks and any(name != subject.engine for name in doubts):
        return Match(advisory, "possible", asks, why)
    return Match(advisory, "undecided", asks, why)


def matches(subject: Subject, advisories: Iterable[Advisory] | None = None) -> tuple[Match, ...]:
    """Every advisory that is not ruled out, applying ones first."""
    order = {"applies": 0, "undecided": 1, "possible": 2}
    chosen = _speaking_of(subject) if advisories is None else advisories
    found = [each for each in (match(advisory, subject) for advisory in chosen) if each.outcome != "not"]
    return tuple(sorted(found, key=lambda each: order[each.outcome]))


def _speaking_of(subject: Subject) -> list[Advisory]:
    """The shipped advisories about this engine or a component that is there, in their order."""
    by_engine = shipped().by_engine
    names = {name for name in by_engine if _present(name, subject)}
    return sorted(
        (advisory for name in names for advisory in by_engine[name]), key=lambda advisory: advisory.id
    )


def _present(name: str, subject: Subject) -> bool:
    """A component counts only where it was seen or declared; nobody could rule out all the others."""
    return name == subject.engine or name in subject.components or subject.answer(name) is True


def _range(name: str, text: str, subject: Subject) -> bool | None:
    return range_holds(_build(name, subject), text)


def _build(name: str, subject: Subject) -> Build:
    return subject.build if name == subject.engine else build_of(name, subject.components.get(name, ""))


def _doubt(name: str, subject: Subject) -> str:
    build = _build(name, subject)
    return f"{name} {build.text} {build.why}" if build.text else f"the version of {name} is not known"
