"""The stepper and the one button: a table over everything that decides a stage."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.server.incidents.models import State
from kvaudit.server.incidents.restore_gate import CHECKS_OF, Facts, Requirement, requirements
from kvaudit.server.web.incidents.stages import RUNS, STAGES, Course, now_of


def course(state: str, *unmet: str, **given: Any) -> Course:
    keys = ("fix", "reproduction", "internal", "pool", "version")
    gate = [Requirement(key, key.title(), key not in unmet, "") for key in (*keys, *(set(unmet) - set(keys)))]
    held = {"quarantined": True, "fixed": True, "override": False, "hindrances": 0, **given}
    return Course(state=state, gate=gate, **held)


CASES = [
    (course("open", quarantined=False, fixed=False), "Mitigated", "quarantine", ""),
    (course("open", fixed=False), "Mitigated", "mitigate", ""),
    (course("mitigated", "fix", "pool", fixed=False), "Fix recorded", "fix", ""),
    (course("mitigated", "reproduction", "internal"), "Verified", "replay", "reproduction"),
    (course("mitigated", "internal", "pool"), "Verified", "run", "internal"),
    (course("mitigated", "external"), "Verified", "upload", "external"),
    (course("mitigated", "pool"), "Verified", "run", "pool"),
    (course("mitigated", "fix"), "Verified", "fix", "fix"),  # recorded, but the nodes have not been read
    (course("mitigated", "record"), "Verified", "", "record"),
    (course("mitigated", "pool", override=True), "Verified", "release", ""),
    (course("mitigated"), "Closed", "release", ""),
    (course("restored", hindrances=10), "Closed", "postmortem", ""),
    (course("restored"), "Closed", "close", ""),
    (course("closed"), None, "", ""),
]


@pytest.mark.parametrize(("given", "stage", "act", "key"), CASES)
def test_what_is_to_do_now(given: Course, stage: str | None, act: str, key: str) -> None:
    now = now_of(given)
    assert [each.name for each in now.stages] == list(STAGES)
    assert next((each.name for each in now.stages if each.state == "now"), None) == stage
    assert (now.act, now.key) == (act, key)
    assert (
        not any(each.state == "done" for each in now.stages[[s.state for s in now.stages].index("now") :])
        if stage
        else all(each.state == "done" for each in now.stages)
    )


def test_every_state_and_every_condition_has_its_step() -> None:
    assert {given.state for given, *_ in CASES} == set(State.values)
    empty = Facts(fixed_at=None, fingerprint="", changed_at=None, cited={}, ran=[], doubts=["forged"])
    keys = {each.key for each in requirements(empty)} | {"external"}
    assert keys == {*RUNS, *CHECKS_OF, "record"}, "a condition that is added says what meets it"


def test_what_is_left_is_said_in_numbers() -> None:
    assert "3 of 5 conditions are met" in now_of(course("mitigated", "internal", "pool")).sentence
    assert "Before closing: 10 left." in now_of(course("restored", hindrances=10)).sentence
