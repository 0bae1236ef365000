"""The way of an incident from opening to closing, and the one thing to do now. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvaudit.server.incidents.models import State
from kvaudit.server.incidents.restore_gate import Requirement

STAGES = ("Open", "Mitigated", "Fix recorded", "Verified", "Closed")

Act = Literal[
    "quarantine", "mitigate", "fix", "replay", "run", "upload", "release", "postmortem", "close", ""
]
RUNS: dict[str, Act] = {"fix": "fix", "reproduction": "replay", "external": "upload"}
"""Condition of the restore gate -> what meets it; every other one is met by a run of its checks."""


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    state: Literal["done", "now", "to come"]


@dataclass(frozen=True, slots=True)
class Now:
    """``act`` is what the primary button does, "" where there is nothing to do; ``key`` the condition that it would
    meet. ``unmet`` are the conditions of the restore gate that are left."""

    stages: Sequence[Stage]
    sentence: str
    act: Act
    key: str = ""
    unmet: Sequence[Requirement] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """What decides the stage. ``override``: one is approved and was not used yet."""

    state: str
    quarantined: bool
    fixed: bool
    gate: Sequence[Requirement]
    override: bool
    hindrances: int


def now_of(course: Course) -> Now:
    unmet = [each for each in course.gate if not each.met]
    reached, sentence, act, key = _step(course, unmet)
    stages = [
        Stage(name, "done" if place < reached else "now" if place == reached else "to come")
        for place, name in enumerate(STAGES)
    ]
    return Now(stages, sentence, act, key, unmet if course.state == State.MITIGATED else ())


def _step(course: Course, unmet: Sequence[Requirement]) -> tuple[int, str, Act, str]:
    """How many stages are behind it, and what leads to the next."""
    if course.state == State.CLOSED:
        return len(STAGES), "Closed.", "", ""
    if course.state == State.RESTORED:
        if course.hindrances:
            return 4, f"Back in traffic. Before closing: {course.hindrances} left.", "postmortem", ""
        return 4, "Back in traffic. Nothing keeps it from being closed.", "close", ""
    if course.state == State.OPEN:
        if not course.quarantined:
            return 1, "Tenants may still be in danger: take it out of traffic.", "quarantine", ""
        return 1, "Under quarantine: say what keeps tenants out of danger now.", "mitigate", ""
    if not course.fixed:
        return 2, "Tenants are out of danger, the cause is not gone: record what was fixed.", "fix", ""
    if not unmet:
        return 4, "Verified: it may go back to traffic.", "release", ""
    done = len(course.gate) - len(unmet)
    sentence = f"The fix is not proved yet: {done} of {len(course.gate)} conditions are met."
    if course.override:
        return 3, f"{sentence} An approved override lets it back all the same.", "release", ""
    first = unmet[0].key
    return 3, sentence, "" if first == "record" else RUNS.get(first, "run"), first
