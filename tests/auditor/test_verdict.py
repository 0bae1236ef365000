"""The vocabulary: whatever is not clearly a pass is not one."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.verdict import EXIT_CODES, Evidence, Result, Verdict, roll_up, worse

P, F, E = Verdict.PASS, Verdict.FAIL, Verdict.ERROR
U = Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdicts", "missing", "expected"),
    [
        ([P], False, P),
        ([P, P], False, P),
        ([P], True, U),
        ([], False, U),
        ([], True, U),
        ([P, U], False, U),
        ([P, E, U], False, E),
        ([P, E, U, F], False, F),
        ([F], True, F),
        ([E], True, E),
        ([P, None], False, E),
        ([P, "passed"], False, E),
        ([P, True], False, E),
        ([P, ""], False, E),
        (["pass", "pass"], False, P),
    ],
)
def test_roll_up(verdicts, missing, expected):
    assert roll_up(verdicts, missing=missing) is expected


@given(
    st.lists(st.one_of(st.sampled_from(list(Verdict)), st.none(), st.text(), st.integers(), st.booleans()))
)
def test_roll_up_passes_only_when_everything_is_a_pass(verdicts):
    passed = roll_up(verdicts) is P
    assert passed == (bool(verdicts) and all(verdict in ("pass", P) for verdict in verdicts))


def test_roll_up_does_not_depend_on_order():
    for verdicts in itertools.product(Verdict, repeat=3):
        results = {roll_up(order) for order in itertools.permutations(verdicts)}
        assert len(results) == 1


@pytest.mark.parametrize("value", [None, "", "PASS", "warn", 0, 1, True, [], {}, b"pass", float("nan")])
def test_what_is_no_verdict_reads_as_error(value):
    assert Verdict.parse(value) is E


def test_exit_codes_are_the_fixed_interface():
    assert {verdict.value: code for verdict, code in EXIT_CODES.items()} == {
        "pass": 0,
        "fail": 1,
        "inconclusive": 2,
        "error": 3,
    }


@pytest.mark.parametrize(("first", "second", "winner"), [(P, F, F), (E, U, E), (U, P, U), (P, P, P)])
def test_the_worse_verdict_wins(first, second, winner):
    assert worse(first, second) is winner
    assert worse(second, first) is winner


def test_a_result_reports_the_fixed_fields_and_no_body():
    evidence = Evidence("response", "ab" * 32, "GET http://node/version", b"secret-free body")
    result = Result(
        "pool",
        F,
        "The pool is too small.",
        {"pool_tokens": 1},
        "Enlarge it.",
        "Nothing else.",
        True,
        "high",
        (evidence,),
    )
    report = json.loads(json.dumps(result.as_report()))
    assert report == {
        "check": "pool",
        "verdict": "fail",
        "warn": True,
        "summary": "The pool is too small.",
        "measures": {"pool_tokens": 1},
        "next": "Enlarge it.",
        "does_not_prove": "Nothing else.",
        "severity": "high",
        "evidence": [{"kind": "response", "sha256": "ab" * 32, "source": "GET http://node/version"}],
    }
