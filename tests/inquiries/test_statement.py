"""What is known between two moments: tables of states and what they come to. Never a plain no."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.inquiries.statement import BY_CAPACITY, CHECKS, Held, Standing, state
from kvaudit.verdict import Verdict

ZERO = datetime(2026, 9, 1, tzinfo=UTC)
ZONE = (681_274, 1_048_570)
DAYS = 20


def day(number):
    return ZERO + timedelta(days=number)


def held(
    check, verdict, since, until=None, *, confirmed=None, expires=None, severity="", expired_by="", **more
):
    """An interval by days; open without ``until``."""
    last = since if until is None else until
    return Held(
        check,
        Verdict(verdict),
        severity or ("critical" if verdict == "fail" else ""),
        day(since),
        day(last if confirmed is None else confirmed),
        day(last + 7 if expires is None else expires),
        None if until is None else day(until),
        expired_by,
        more.pop("fingerprint", "one"),
        more.pop("run", 1),
        **more,
    )


def told(*states, since=0, until=DAYS):
    """``untested 0-3, shown leaking 3-20`` as a string to compare."""
    found = state(states, day(since), day(until))
    parts: list[list] = []
    for span in found.spans:
        start, end = ((each - ZERO) / timedelta(days=1) for each in (span.start, span.end))
        if parts and parts[-1][0] == span.standing.value:
            parts[-1][2] = end
        else:
            parts.append([span.standing.value, start, end])
    return ", ".join(f"{name} {start:g}-{end:g}" for name, start, end in parts)


BOTH = (held("canary", "pass", 2, 12, bound=0.049), held("rejection", "pass", 2, 12))


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ((), "untested 0-20"),
        # Bounded needs both, passed; an open pass holds until its expiry.
        (BOTH, "untested 0-2, bounded by a valid pass 2-12, untested 12-20"),
        (BOTH[:1], "untested 0-20"),
        (BOTH[1:], "untested 0-20"),
        (
            (held("canary", "pass", 2), held("rejection", "pass", 4)),
            "untested 0-4, bounded by a valid pass 4-9, untested 9-20",
        ),
        # Inconclusive is not a pass.
        ((held("canary", "inconclusive", 2, 12), BOTH[1]), "untested 0-20"),
        ((held("canary", "error", 2, 12), BOTH[1]), "untested 0-20"),
        # A capacity change ends what was known.
        (
            (held("canary", "pass", 2, confirmed=8, expires=9, expired_by=BY_CAPACITY), held("rejection", "pass", 2, 12)),
            "untested 0-2, bounded by a valid pass 2-9, untested 9-20",
        ),
        # Between the last pass and the first fail nobody looked.
        (
            (held("canary", "pass", 2, 8, confirmed=6), held("canary", "fail", 8), held("rejection", "pass", 2, 12)),
            "untested 0-2, bounded by a valid pass 2-6, untested 6-8, shown leaking 8-20",
        ),
        # ... whichever check failed.
        (
            (held("canary", "pass", 2, 12, confirmed=6), held("rejection", "pass", 2, 12, confirmed=6),
             held("coherence", "fail", 9, 10), held("coherence", "pass", 10, 12)),
            "untested 0-2, bounded by a valid pass 2-6, untested 6-9, shown leaking 9-10, untested 10-20",
        ),
        # A leak is mended by a pass of the same check, not by time, doubt or silence.
        ((held("canary", "fail", 3, confirmed=3, expires=10),), "untested 0-3, shown leaking 3-20"),
        (
            (held("canary", "fail", 3, 5), held("canary", "inconclusive", 5, 6), held("canary", "error", 6)),
            "untested 0-3, shown leaking 3-20",
        ),
        ((held("canary", "fail", 3, 5), held("canary", "pass", 5)), "untested 0-3, shown leaking 3-5, untested 5-20"),
        (
            (held("canary", "fail", 3, 5), held("canary", "inconclusive", 5, fingerprint="two")),
            "untested 0-3, shown leaking 3-5, untested 5-20",
        ),
        (
            (held("canary", "fail", 3, expires=6, expired_by=BY_CAPACITY),),
            "untested 0-3, shown leaking 3-6, untested 6-20",
        ),
        # A fail that is no leak is no leak.
        ((held("rejection", "fail", 3, severity="medium"),), "untested 0-20"),
        # The danger zone, and what outranks it.
        ((held("pool", "fail", 3, 9, zone=ZONE),), "untested 0-3, danger zone open 3-9, untested 9-20"),
        ((held("pool", "fail", 3, 9, severity="high", zone=ZONE),), "untested 0-3, danger zone open 3-9, untested 9-20"),
        ((held("pool", "fail", 3, 9, severity="critical"),), "untested 0-3, danger zone open 3-9, untested 9-20"),
        ((held("pool", "fail", 3, 9, severity="high"),), "untested 0-20"),
        (
            (held("pool", "fail", 3, 9, zone=ZONE), held("canary", "fail", 5, 7), held("canary", "pass", 7), *BOTH[1:]),
            "untested 0-3, danger zone open 3-5, shown leaking 5-7, danger zone open 7-9, "
            "bounded by a valid pass 9-12, untested 12-20",
        ),
        ((*BOTH, held("pool", "fail", 0, 20, zone=ZONE)), "danger zone open 0-20"),
    ],
)  # fmt: skip
def test_states_and_what_they_come_to(states, wanted):
    assert told(*states) == wanted


def test_the_window_cuts():
    assert told(*BOTH, since=5, until=8) == "bounded by a valid pass 5-8"
    assert state(BOTH, day(5), day(8)).worst is Standing.BOUNDED
    assert state(BOTH, day(5), day(8)).largest_bound == 0.049


def test_a_bound_that_is_missing_somewhere_is_not_claimed():
    other = (held("canary", "pass", 12, bound=None), held("rejection", "pass", 12))
    assert state((*BOTH, *other), day(3), day(14)).largest_bound is None


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ((), "canary had never run; rejection had never run"),
        (BOTH[1:], "canary had never run"),
        (
            (held("canary", "inconclusive", 0), held("rejection", "pass", 0)),
            "canary had last been inconclusive",
        ),
        (
            (held("canary", "pass", -9, expires=-1), held("rejection", "pass", 0)),
            "canary's pass was ended by its age",
        ),
        (
            (held("canary", "pass", -9, expires=-1, expired_by=BY_CAPACITY), held("rejection", "pass", 0)),
            "canary's pass was ended by a capacity change",
        ),
    ],
)
def test_a_gap_says_why(states, why):
    assert state(states, day(3), day(4)).spans[0].why == why


moments = st.integers(min_value=-10, max_value=30)
anything = st.builds(
    lambda check, verdict, severity, since, length, still, zone: held(
        check,
        verdict,
        since,
        None if still else since + length,
        confirmed=since + length // 2,
        severity=severity,
        zone=ZONE if zone else None,
    ),
    st.sampled_from(CHECKS),
    st.sampled_from([each.value for each in Verdict]),
    st.sampled_from(["critical", "high", "medium"]),
    moments,
    st.integers(min_value=0, max_value=9),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(anything, max_size=12))
def test_the_window_is_covered_once_and_only_passes_bound(states):
    found = state(states, day(0), day(DAYS))
    assert found.spans[0].start == day(0)
    assert found.spans[-1].end == day(DAYS)
    for before, after in zip(found.spans, found.spans[1:], strict=False):
        assert before.end == after.start
    assert sum((found.share(each) for each in Standing), 0.0) == pytest.approx(1)
    for span in found.spans:
        if span.standing is Standing.BOUNDED:
            middle = span.start + span.length / 2
            for check in ("canary", "rejection"):
                assert any(
                    each.check == check and each.verdict is Verdict.PASS and each.since <= middle < each.end
                    for each in states
                )
    if not any(each.verdict is Verdict.PASS for each in states):
        assert not found.time(Standing.BOUNDED)
