"""The restore gate as a table: everything met, and one thing wrong at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.incidents.restore_gate import External, Facts, FinishedTest, is_open, requirements

FIX = datetime(2026, 9, 9, 12, tzinfo=UTC)
LENGTHS = (681_274, 681_275)


def ran(check, run_id, verdict=Verdict.PASS, *, replay=False, minutes=10, fingerprint="new", asked=LENGTHS):
    at = FIX + timedelta(minutes=minutes)
    return FinishedTest(run_id, check, verdict, at, at, fingerprint, replay, frozenset(asked))


GOOD = Facts(
    fixed_at=FIX,
    fingerprint="new",
    changed_at=FIX + timedelta(minutes=1),
    cited={"rejection": LENGTHS},
    ran=(
        ran("rejection", 1, replay=True),
        ran("canary", 2),
        ran("rejection", 2),
        ran("pool", 3),
        ran("version", 3),
    ),
    exact=frozenset({"rejection", "canary"}),
)


def without(check, *, replay=False):
    return tuple(each for each in GOOD.ran if (each.check, each.replay) != (check, replay))


def test_everything_met():
    assert is_open(GOOD)
    assert [requirement.key for requirement in requirements(GOOD)] == [
        "fix",
        "reproduction",
        "internal",
        "pool",
        "version",
    ]
    assert {run for requirement in requirements(GOOD) for run in requirement.runs} == {1, 2, 3}


@pytest.mark.parametrize(
    ("closed_by", "facts"),
    [
        ("fix", replace(GOOD, fixed_at=None)),
        ("fix", replace(GOOD, fingerprint="")),
        ("reproduction", replace(GOOD, ran=without("rejection", replay=True))),
        (
            "reproduction",
            replace(GOOD, ran=(*GOOD.ran, ran("rejection", 9, Verdict.FAIL, replay=True, minutes=20))),
        ),
        (
            "reproduction",
            replace(GOOD, ran=(*GOOD.ran, ran("rejection", 9, replay=True, minutes=20, asked=[681_274]))),
        ),
        ("reproduction", replace(GOOD, cited={"rejection": LENGTHS, "canary": ()})),
        ("reproduction", replace(GOOD, cited={})),
        # A replay is no internal set, and the internal set is no replay.
        ("internal", replace(GOOD, ran=without("rejection"))),
        ("internal", replace(GOOD, ran=without("canary"))),
        ("internal", replace(GOOD, ran=(*GOOD.ran, ran("canary", 9, Verdict.INCONCLUSIVE, minutes=20)))),
        ("pool", replace(GOOD, ran=without("pool"))),
        ("version", replace(GOOD, ran=(*GOOD.ran, ran("version", 9, Verdict.ERROR, minutes=20)))),
        # Before the last change of capacity, or on another configuration, nothing counts.
        ("reproduction", replace(GOOD, changed_at=FIX + timedelta(minutes=30))),
        ("internal", replace(GOOD, fingerprint="newer")),
        ("reproduction", replace(GOOD, failed_at=FIX + timedelta(minutes=30))),
        (
            "external",
            replace(GOOD, external=(External(FIX + timedelta(minutes=5), "new", True, False, "x.py"),)),
        ),
        (
            "external",
            replace(GOOD, external=(External(FIX + timedelta(minutes=5), "new", False, True, "x.py"),)),
        ),
        (
            "external",
            replace(GOOD, external=(External(FIX - timedelta(minutes=5), "new", False, False, "x.py"),)),
        ),
    ],
)
def test_one_thing_wrong_keeps_it_closed(closed_by, facts):
    assert not is_open(facts)
    assert closed_by in [requirement.key for requirement in requirements(facts) if not requirement.met]


def test_the_newest_result_decides():
    old = ran("canary", 0, Verdict.FAIL, minutes=2)
    assert is_open(replace(GOOD, ran=(*GOOD.ran, old)))


def test_an_external_script_beside_the_replay():
    external = (External(FIX + timedelta(minutes=5), "new", False, False, "researcher.py"),)
    assert is_open(replace(GOOD, external=external))
    assert is_open(replace(GOOD, cited={}, external=external)), (
        "nothing to replay: the script is the reproduction"
    )
