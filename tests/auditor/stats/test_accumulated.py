"""What many runs show together: the rule, what resets it, what it forecasts, and that its bound holds."""

from datetime import UTC, datetime, timedelta

import pytest

from kvaudit.auditor.stats.accumulated import accumulate
from kvaudit.auditor.stats.run_evidence import STRATA, read

NOW = datetime(2026, 12, 1, 4, tzinfo=UTC)
NEVER_MISSES = [{"mode": "ids", "tail": "phrase", "trials": 4_000, "surfaced": 4_000}]


def trials(stratum="boundary", weight=5.0, *, count=None, replica="a", tail="phrase"):
    return {
        "stratum": stratum,
        "mode": "ids",
        "tail": tail,
        "replica": replica,
        "count": count or round(weight) + 1,
        "weight": weight,
    }


def run(days_ago, *rows, doubt="", **said):
    """One run's evidence; effective trials are weights, since surfacing is all but certain."""
    told = {
        "build": "b1",
        "build_said": "sglang 0.5.13, page 64",
        "where": "production",
        "void_share": 0.0,
        "trials": list(rows),
        "surfacing": NEVER_MISSES,
        "hits": 0,
    }
    found = read(NOW - timedelta(days=days_ago), told | said, doubt)
    assert found is not None
    return found


def qualified(days_ago=10, weight=20.1, **said):
    return run(days_ago, trials(weight=weight), **({"where": "newcomer"} | said))


def night(days_ago, weight=4.0, **said):
    return run(days_ago, trials("log-uniform", weight), **said)


GREEN = [qualified(), night(1), night(2)]


def keys(state):
    return [rule.key for rule in state.missing]


def test_a_qualified_build_with_fresh_nights_is_green():
    state = accumulate(GREEN, NOW)
    assert state.green
    assert state.total == pytest.approx(28.1, rel=0.01)
    assert state.bound == pytest.approx(3.0 / 28.1, rel=0.02)
    assert state.places == {
        "newcomer": pytest.approx(20.1, rel=0.01),
        "production": pytest.approx(8, rel=0.01),
    }
    assert state.build_said == "sglang 0.5.13, page 64"


@pytest.mark.parametrize(
    ("runs", "missing"),
    [
        pytest.param([], ["total", "boundary", "fresh"], id="nothing at all"),
        pytest.param(GREEN[:1], ["fresh"], id="no production night"),
        pytest.param([night(day, 30) for day in (1, 2)], ["boundary"], id="no boundary"),
        pytest.param([qualified(), night(1)], ["fresh"], id="four of seven and a half"),
        pytest.param([qualified(31), night(1), night(2)], ["total", "boundary"], id="qualified too long ago"),
        pytest.param([qualified(), night(8), night(9)], ["fresh"], id="nights of last week"),
        pytest.param(
            [qualified(), night(1, where="drained"), night(2)],
            ["fresh"],
            id="a drained replica serves nobody",
        ),
        pytest.param(
            [qualified(build="b0"), *GREEN[1:]], ["total", "boundary"], id="another build was qualified"
        ),
        pytest.param([*GREEN[1:], qualified(void_share=0.11)], ["total", "boundary"], id="too much was void"),
        pytest.param(
            [run(1, trials(weight=60, tail="nonce")), night(2, 9)],
            ["total", "boundary"],
            id="nothing surfaces",
        ),
    ],
)
def test_what_is_missing_is_named(runs, missing):
    state = accumulate(runs, NOW)
    assert keys(state) == missing
    assert not state.green
    assert state.expires_at is None


def test_a_build_that_nobody_knows_is_never_green():
    assert not accumulate([qualified(build=""), night(1, 90, build="")], NOW).green
    assert not accumulate(GREEN, NOW, build="").green


def test_the_build_that_serves_counts_whatever_newcomers_run():
    assert accumulate([*GREEN, qualified(0.1, build="b2")], NOW).green
    assert not accumulate(GREEN, NOW, build="b2").green


def test_void_trials_are_taken_off():
    assert accumulate([qualified(void_share=0.1)], NOW).total == pytest.approx(18.1, rel=0.01)


def test_surfacing_is_the_lower_limit_over_all_runs_by_mode_and_tail():
    ten = [{"mode": "ids", "tail": "phrase", "trials": 10, "surfaced": 10}]
    assert accumulate([qualified(surfacing=ten)], NOW).total == pytest.approx(20.1 * 0.741, rel=0.01)
    both = [qualified(surfacing=ten), night(1, 1, surfacing=ten)]
    assert accumulate(both, NOW).total == pytest.approx(21.1 * 0.861, rel=0.01)


def test_a_run_whose_own_surfacing_contradicts_the_others_counts_by_its_own():
    blind = [{"mode": "ids", "tail": "phrase", "trials": 40, "surfaced": 0}]
    state = accumulate([qualified(), night(1, 20, surfacing=blind)], NOW)
    assert state.places["production"] < 20 * 0.11


class TestHits:
    def test_a_hit_stays_until_a_fix_is_recorded(self):
        runs = [*GREEN, night(3, hits=1)]
        assert accumulate(runs, NOW).hit_at == NOW - timedelta(days=3)
        assert not accumulate(runs, NOW).green
        before_it = NOW - timedelta(days=4)
        assert accumulate(runs, NOW, fixes=[before_it]).hit_at is not None

    def test_of_months_ago_and_on_another_build_as_well(self):
        assert accumulate([*GREEN, night(300, build="b0", hits=2)], NOW).hit_at is not None

    def test_on_another_build_a_recorded_fix_costs_nothing(self):
        runs = [*GREEN, night(20, build="b0", hits=2)]
        assert accumulate(runs, NOW, fixes=[NOW - timedelta(days=5)]).green

    def test_on_the_same_build_evidence_starts_again_and_is_dearer(self):
        fixed = [NOW - timedelta(days=12)]
        runs = [*GREEN, night(13, 500, hits=1), night(12.5, 500)]
        state = accumulate(runs, NOW, fixes=fixed)
        assert state.hit_at is None
        assert state.total == pytest.approx(28.1, rel=0.01)
        assert keys(state) == ["boundary"]
        assert [rule.needs for rule in state.rules] == [25, 25, 7.5]
        assert state.bound == pytest.approx(1.25 * 3 / 28.1, rel=0.02)
        assert accumulate([qualified(weight=25.1), *runs[1:]], NOW, fixes=fixed).green

    def test_of_an_unknown_build_counts_for_each(self):
        runs = [*GREEN, night(11, build="", hits=1)]
        assert keys(accumulate(runs, NOW, fixes=[NOW - timedelta(days=9)])) == ["total", "boundary"]


def test_an_unexplained_miss_needs_fresh_nights_after_it():
    runs = [*GREEN, night(0.5, doubt="two misses came back as read")]
    assert accumulate(runs, NOW).doubt == "two misses came back as read"
    assert not accumulate(runs, NOW).green
    state = accumulate([*runs, night(0.2, 8)], NOW)
    assert state.green
    assert not state.doubt


def test_it_says_when_it_is_too_old():
    assert accumulate(GREEN, NOW).expires_at == NOW + timedelta(days=5)
    assert accumulate([qualified(28), *GREEN[1:]], NOW).expires_at == NOW + timedelta(days=2)
    ends = accumulate(GREEN, NOW).expires_at
    assert accumulate(GREEN, ends - timedelta(seconds=1)).green
    assert not accumulate(GREEN, ends).green


class TestForecast:
    def test_counts_the_nights_that_are_still_to_come(self):
        state = accumulate([run(0.1, trials(weight=6), trials("edge", 6))], NOW)
        assert state.nights == 3
        assert state.nights_to_show() == pytest.approx(3 / (0.15 * 12), rel=0.01)

    def test_knows_what_expires_meanwhile(self):
        few = [night(day, 1) for day in (1, 2, 3)]
        assert accumulate([qualified(), *few], NOW).nights is None

    def test_says_never_where_the_boundary_is_out_of_reach(self):
        assert accumulate([night(1, 20)], NOW).nights is None

    def test_is_silent_without_a_night(self):
        state = accumulate([qualified()], NOW)
        assert state.nights is None
        assert state.nights_to_show() is None


def test_strata_state_their_own_bound_and_one_for_all_at_once():
    rows = [trials(name, 20.0) for name in STRATA]
    state = accumulate([run(1, *rows)], NOW)
    assert state.strata == dict.fromkeys(STRATA, pytest.approx(20, rel=0.01))
    assert state.bound_of_each == pytest.approx(4.382 / 20, rel=0.01)
    assert accumulate(GREEN, NOW).bound_of_each == 1


def test_trials_on_one_sticky_replica_are_one_trial_of_replicas():
    one = accumulate([run(1, trials(weight=500))], NOW)
    assert one.bound < 0.01
    assert one.replica_bound == 1
    rows = [trials(weight=50, replica=f"r{number}") for number in range(16)]
    assert accumulate([run(1, *rows)], NOW).replica_bound == pytest.approx(3 / 16, rel=0.01)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"build": "b1", "where": "staging", "void_share": 0, "hits": 0},
        {"build": "b1", "where": "production", "void_share": 1.5, "hits": 0},
        {"build": "b1", "where": "production", "void_share": float("nan"), "hits": 0},
        {"build": 7, "where": "production", "void_share": 0, "hits": 0},
        {"build": "b1", "where": "production", "void_share": 0, "hits": True},
    ],
)
def test_what_is_no_evidence_counts_nothing(told):
    assert read(NOW, told) is None


@pytest.mark.parametrize(
    "row",
    [
        trials() | {"stratum": "elsewhere"},
        trials() | {"weight": -5},
        trials() | {"weight": "5"},
        trials() | {"count": -1},
        None,
        "boundary",
    ],
)
def test_what_is_no_trial_counts_nothing(row):
    assert run(1, row).trials == ()


def test_a_weight_is_no_more_than_its_count():
    assert run(1, trials(weight=500, count=6)).trials[0].weight == 6
