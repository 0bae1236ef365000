"""Whatever a stranger sends costs time in proportion to its length, or is given up with a sentence.

Processor time of one and of four sizes: a square would need sixteen times as much. The least of several looks decides,
since a busy machine only ever adds to it.
"""

from __future__ import annotations

import math
import time

import pytest

from tests.costly import Costly, cases, outcome

SIZE = 60_000
STEP = 4
MOST = 10.0  # times the processor time of a quarter
LOOKS = 12
FLOOR = 0.02  # seconds that a measurement may be off


def seconds(case: Costly, size: int) -> float:
    body = case.body(size)
    began = time.process_time()
    outcome(case, body)
    return time.process_time() - began


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_time_grows_with_the_length(case: Costly) -> None:
    short = long = math.inf
    for _ in range(LOOKS):
        short, long = min(short, seconds(case, SIZE)), min(long, seconds(case, STEP * SIZE))
        if long <= MOST * short + FLOOR:
            return
    pytest.fail(f"{STEP} times the input took {long / short:.1f} times as long ({short:.3f} s, {long:.3f} s)")


def test_nothing_that_was_made_to_cost_time_takes_seconds() -> None:
    """Thirty seconds a megabyte were measured; a tenth of a second is usual."""
    slow = {}
    for case in cases():
        if (took := seconds(case, 4 * SIZE)) > 3.0:
            slow[case.name] = took
    assert not slow


@pytest.mark.parametrize(
    ("parser", "unit"),
    [("redaction", "key='"), ("events", "data: 1\n\n"), ("chunks", "a"), ("events", ":\n")],
)
def test_what_is_given_up_is_given_up_with_a_sentence(parser: str, unit: str) -> None:
    case = next(case for case in cases() if case.parser == parser and case.unit == unit)
    said = outcome(case, case.body(2_000_000))
    assert said.endswith("."), said
    assert "Traceback" not in said
