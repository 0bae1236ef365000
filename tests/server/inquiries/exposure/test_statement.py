"""What is known between two moments: tables of states and what they come to. Never a plain no."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.inquiries.exposure.statement import BY_CAPACITY, CHECKS, state
from kvaudit.server.inquiries.exposure.timespans import SpanStatus, StateInterval

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
    return StateInterval(
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
MENDED = held("pool", "pass", 9)


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
        # ... nor by the digest of a run that decided nothing: a node that did not answer is not in it.
        (
            (held("canary", "fail", 3, 5), held("canary", "inconclusive", 5, fingerprint="two")),
            "untested 0-3, shown leaking 3-20",
        ),
        (
            (held("canary", "fail", 3, expires=6, expired_by=BY_CAPACITY),),
            "untested 0-3, shown leaking 3-6, untested 6-20",
        ),
        # A fail that is no leak is no leak.
        ((held("rejection", "fail", 3, severity="medium"),), "untested 0-20"),
        # The danger zone, and what outranks it.
        ((held("pool", "fail", 3, 9, zone=ZONE), MENDED), "untested 0-3, danger zone open 3-9, untested 9-20"),
        ((held("pool", "fail", 3, 9, severity="high", zone=ZONE), MENDED),
         "untested 0-3, danger zone open 3-9, untested 9-20"),
        ((held("pool", "fail", 3, 9, severity="critical"), MENDED), "untested 0-3, danger zone open 3-9, untested 9-20"),
        ((held("pool", "fail", 3, 9, severity="high"),), "untested 0-20"),
        # It stays open while nobody looks, and while looking decides nothing, whatever else passes.
        ((held("pool", "fail", 1, confirmed=1, expires=8, zone=ZONE),), "untested 0-1, danger zone open 1-20"),
        ((*BOTH, held("pool", "fail", 0, 3, zone=ZONE), held("pool", "error", 3)), "danger zone open 0-20"),
        ((*BOTH, held("pool", "fail", 0, 3, zone=ZONE), held("pool", "error", 3, fingerprint="")), "danger zone open 0-20"),
        (
            (*BOTH, held("pool", "fail", 0, 3, zone=ZONE), held("pool", "inconclusive", 3, 5, fingerprint="two"),
             held("pool", "error", 5, 6), held("pool", "pass", 6)),
            "danger zone open 0-6, bounded by a valid pass 6-12, untested 12-20",
        ),
        # A fail that is no danger zone ends it, another danger zone goes on with it.
        (
            (held("pool", "fail", 1, 3, zone=ZONE), held("pool", "fail", 3, severity="high")),
            "untested 0-1, danger zone open 1-3, untested 3-20",
        ),
        (
            (held("pool", "fail", 1, 3, zone=ZONE), held("pool", "fail", 3, 5, zone=(1, 2)), held("pool", "pass", 5)),
            "untested 0-1, danger zone open 1-5, untested 5-20",
        ),
        # A capacity change ends it: also one that only a later interval, or another check's, tells of.
        (
            (held("pool", "fail", 1, expires=4, expired_by=BY_CAPACITY, zone=ZONE),),
            "untested 0-1, danger zone open 1-4, untested 4-20",
        ),
        (
            (held("pool", "fail", 1, 3, zone=ZONE), held("pool", "error", 3, expires=6, expired_by=BY_CAPACITY)),
            "untested 0-1, danger zone open 1-6, untested 6-20",
        ),
        (
            (held("pool", "fail", 1, confirmed=1, expires=8, zone=ZONE),
             held("canary", "inconclusive", 2, confirmed=9, expires=10, expired_by=BY_CAPACITY)),
            "untested 0-1, danger zone open 1-10, untested 10-20",
        ),
        # ... but not one that the fail was confirmed after.
        (
            (held("pool", "fail", 1, confirmed=12, expires=19, zone=ZONE),
             held("canary", "inconclusive", 2, confirmed=9, expires=10, expired_by=BY_CAPACITY)),
            "untested 0-1, danger zone open 1-20",
        ),
        (
            (held("pool", "fail", 3, 9, zone=ZONE), MENDED, held("canary", "fail", 5, 7), held("canary", "pass", 7),
             *BOTH[1:]),
            "untested 0-3, danger zone open 3-5, shown leaking 5-7, danger zone open 7-9, "
            "bounded by a valid pass 9-12, untested 12-20",
        ),
        ((*BOTH, held("pool", "fail", 0, 20, zone=ZONE)), "danger zone open 0-20"),
        # Two passes bound only what both were seen on.
        ((held("canary", "pass", 2, 12, fingerprint="two"), BOTH[1]), "untested 0-20"),
        ((held("canary", "pass", 2, 12, fingerprint=""), BOTH[1]), "untested 0-20"),
        ((held("canary", "pass", 2, 12, fingerprint=""), held("rejection", "pass", 2, 12, fingerprint="")), "untested 0-20"),
        (
            (*BOTH, held("rejection", "pass", 12, 14, fingerprint="two"), held("canary", "pass", 12, 14),
             held("canary", "pass", 14, fingerprint="two"), held("rejection", "pass", 14, fingerprint="two")),
            "untested 0-2, bounded by a valid pass 2-12, untested 12-14, bounded by a valid pass 14-20",
        ),
    ],
)  # fmt: skip
def test_states_and_what_they_come_to(states, wanted):
    assert told(*states) == wanted


@pytest.mark.parametrize("check", [check.id for check in checks.CHECKS.values() if check.leak])
def test_every_check_that_reads_answers_may_show_a_leak(check):
    assert told(held(check, "fail", 5, 8), held(check, "pass", 8, 12)) == (
        "untested 0-5, shown leaking 5-8, untested 8-20"
    )


def test_a_leak_of_another_pool_goes_before_a_bound():
    found = told(*BOTH, held("session", "fail", 5, 8), held("session", "pass", 8, 12))
    assert found == (
        "untested 0-2, bounded by a valid pass 2-5, shown leaking 5-8, bounded by a valid pass 8-12, untested 12-20"
    )


def test_the_window_cuts():
    assert told(*BOTH, since=5, until=8) == "bounded by a valid pass 5-8"
    assert state(BOTH, day(5), day(8)).worst is SpanStatus.BOUNDED
    assert state(BOTH, day(5), day(8)).largest_bound == 0.049


def test_what_is_found_later_bears_on_an_earlier_window():
    states = (
        held("canary", "pass", 0, 9, confirmed=2),
        held("rejection", "pass", 0, 9, confirmed=2),
        held("coherence", "fail", 6),
    )
    assert told(*states, until=6) == told(*states).removesuffix(", shown leaking 6-20")
    assert told(*states, until=6) == "bounded by a valid pass 0-2, untested 2-6"


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
        (
            (held("canary", "pass", 0, 9, fingerprint="two"), held("rejection", "pass", 0, 9)),
            "canary had passed on fingerprint two, rejection on fingerprint one: "
            "no configuration is known to have had both",
        ),
        (
            (held("canary", "pass", 0, 9, fingerprint="0123456789abcdef"), held("rejection", "pass", 0, 9, fingerprint="")),
            "canary had passed on fingerprint 01234567, rejection on an unknown fingerprint: "
            "no configuration is known to have had both",
        ),
        # Whose fail it was: its own, or another check's.
        (
            (held("rejection", "pass", 0, 9, confirmed=2), held("rejection", "fail", 9, severity="medium"),
             held("canary", "pass", 0, 9)),
            "rejection's last pass was followed by a fail",
        ),
        (
            (held("rejection", "pass", 0, 9, confirmed=2), held("canary", "pass", 0, 4, confirmed=3),
             held("canary", "fail", 4)),
            "canary's last pass was followed by a fail; rejection had last passed before canary failed critically",
        ),
    ],
)  # fmt: skip
def test_a_gap_says_why(states, why):
    assert state(states, day(3), day(4)).spans[0].why == why


def parts(found, standing):
    """``start-end`` in days, of what was looked at; with ``@day`` of the last look where nobody looked again."""
    return [
        "-".join(f"{(each - ZERO) / timedelta(days=1):g}" for each in (span.start, span.end))
        + (f"@{(span.last_look - ZERO) / timedelta(days=1):g}" if span.last_look else "")
        for span in found.spans
        if span.standing is standing
    ]


def test_what_nobody_looked_at_again_says_so():
    danger = (
        held("pool", "fail", 1, 3, confirmed=2, zone=ZONE),
        held("pool", "error", 3, 9),
        held("pool", "pass", 9),
    )
    found = state(danger, day(0), day(DAYS))
    assert parts(found, SpanStatus.DANGER) == ["1-3", "3-9@2"]
    assert found.unconfirmed(SpanStatus.DANGER) == timedelta(days=6)
    assert found.last_look(SpanStatus.DANGER) == day(2)
    assert [(zone.start, zone.end, zone.zone) for zone in found.zones] == [(day(1), day(9), ZONE)]
    found = state([held("canary", "fail", 1, confirmed=4, expires=11)], day(0), day(DAYS))
    assert parts(found, SpanStatus.LEAKING) == ["1-11", "11-20@4"]
    assert found.last_look(SpanStatus.DANGER) is None
    assert not found.unconfirmed(SpanStatus.DANGER)


def test_what_one_check_saw_goes_before_what_another_was_not_asked_again():
    found = state(
        [held("canary", "fail", 0, confirmed=0, expires=5), held("coherence", "fail", 6, 10, run=2)],
        day(0),
        day(10),
    )
    assert parts(found, SpanStatus.LEAKING) == ["0-5", "5-6@0", "6-10"]


def test_a_capacity_change_that_no_interval_tells_of_ends_what_a_fail_showed():
    aged = (held("pool", "fail", 1, confirmed=1, expires=8, zone=ZONE), held("canary", "fail", 1, expires=8))
    found = state(aged, day(0), day(DAYS), [day(-3), day(10)])
    assert parts(found, SpanStatus.LEAKING) == ["1-8", "8-10@1"]
    assert found.dangers[-1].end == day(10)
    assert found.spans[-1].standing is SpanStatus.UNTESTED
    # Seen before the fail, it ends nothing.
    assert state(aged, day(0), day(DAYS), [day(1)]).spans[-1].standing is SpanStatus.LEAKING


def test_equal_openings_that_touch_are_one_zone():
    flapping = [
        held("pool", "fail", n, n + 1, severity=("critical", "high")[n % 2], zone=ZONE) for n in range(6)
    ]
    apart = [
        held("pool", "pass", 6, 8),
        held("pool", "fail", 8, 9, zone=ZONE),
        held("pool", "fail", 9, 10, zone=(1, 2)),
    ]
    found = state([*flapping, *apart, held("pool", "pass", 10)], day(0), day(DAYS))
    assert [(zone.start, zone.end, zone.zone) for zone in found.zones] == [
        (day(0), day(6), ZONE),
        (day(8), day(9), ZONE),
        (day(9), day(10), (1, 2)),
    ]
    assert len(found.dangers) == 8


moments = st.integers(min_value=-10, max_value=30)
anything = st.builds(
    lambda check, verdict, severity, since, length, still, zone, fingerprint: held(
        check,
        verdict,
        since,
        None if still else since + length,
        confirmed=since + length // 2,
        severity=severity,
        zone=ZONE if zone else None,
        fingerprint=fingerprint,
    ),
    st.sampled_from(CHECKS),
    st.sampled_from([each.value for each in Verdict]),
    st.sampled_from(["critical", "high", "medium"]),
    moments,
    st.integers(min_value=0, max_value=9),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "one", "two"]),
)


@given(st.lists(anything, max_size=12))
def test_the_window_is_covered_once_and_only_passes_bound(states):
    found = state(states, day(0), day(DAYS))
    assert found.spans[0].start == day(0)
    assert found.spans[-1].end == day(DAYS)
    for before, after in zip(found.spans, found.spans[1:], strict=False):
        assert before.end == after.start
    assert sum((found.share(each) for each in SpanStatus), 0.0) == pytest.approx(1)
    for span in found.spans:
        if span.standing is SpanStatus.BOUNDED:
            middle = span.start + span.length / 2
            assert span.fingerprint
            for check in ("canary", "rejection"):
                assert any(
                    each.check == check
                    and each.verdict is Verdict.PASS
                    and each.fingerprint == span.fingerprint
                    and each.since <= middle < each.end
                    for each in states
                )
    if not any(each.verdict is Verdict.PASS for each in states):
        assert not found.time(SpanStatus.BOUNDED)


@given(st.lists(anything, max_size=12), st.lists(moments, max_size=2))
def test_a_danger_zone_never_closes_by_itself(states, changes):
    """Day by day: after a pool fail with a zone, the zone is open (or worse) until pool decides or capacity moves."""
    found = state(states, day(0), day(DAYS), [day(change) for change in changes])
    for bad in states:
        if bad.check != "pool" or bad.verdict is not Verdict.FAIL or bad.zone is None:
            continue
        ends = [day(change) for change in changes if day(change) > bad.last_confirmed]
        ends += [
            each.since
            for each in states
            if each is not bad
            and each.check == "pool"
            and each.verdict in (Verdict.PASS, Verdict.FAIL)
            and each.since >= bad.since
        ]
        end = min([day(DAYS), *ends])
        for span in found.spans:
            if bad.since <= span.start < end:
                assert span.standing in (SpanStatus.DANGER, SpanStatus.LEAKING)
