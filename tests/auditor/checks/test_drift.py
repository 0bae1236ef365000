"""The gate must have completed since the last capacity change."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kvaudit.auditor.checks import get
from kvaudit.auditor.checks.contract import History, Rules
from kvaudit.auditor.readings import fingerprint
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.audits import audit, node, silent

PASS, FAIL, INCONCLUSIVE, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BEFORE = node("unified", settings={"tp_size": 8})
RECORD = {"unified-0": fingerprint(BEFORE.facts)}


def judge(*nodes, **more):
    return get("drift").judge(None, audit(*nodes, **more))


@pytest.mark.parametrize(
    ("changed", "completed", "expired", "verdict", "said"),
    [
        (None, NOON, False, PASS, "nothing has changed"),
        (NOON, NOON + HOUR, False, PASS, "nothing has changed"),
        (NOON, NOON, False, PASS, "nothing has changed"),
        (NOON, NOON - HOUR, False, FAIL, "has not completed since"),
        (NOON, None, False, FAIL, "has not completed since"),
        (None, None, False, INCONCLUSIVE, "never completed"),
        (None, NOON, True, INCONCLUSIVE, "expired"),
        (NOON, NOON - HOUR, True, FAIL, "has not completed since"),
    ],
)
def test_history(changed, completed, expired, verdict, said):
    history = History(
        fingerprint_changed_at=changed, gate_completed_at=completed, gate_expired=expired, previous=RECORD
    )
    result = judge(BEFORE, history=history)
    assert result.verdict is verdict
    assert said in result.summary.lower()


def test_without_history_nothing_can_be_said():
    result = judge(BEFORE)
    assert result.verdict is INCONCLUSIVE
    assert "history not consulted" in result.summary.lower()


@pytest.mark.parametrize(
    ("after", "verdict", "said"),
    [
        (node("unified", settings={"tp_size": 4}), FAIL, "tp_size 8 -> 4"),
        (node("unified", settings={"tp_size": 8}, version="0.5.23"), FAIL, "version 0.5.22 -> 0.5.23"),
        (node("unified", settings={"tp_size": 8}, context=2_000_000, limit=1), FAIL, "context"),
        # a restart draws the pool anew: 1 % is no change, 3 % is, and so is crossing a limit
        (node("unified", 2_020_000, settings={"tp_size": 8}), PASS, ""),
        (node("unified", 1_970_000, settings={"tp_size": 8}), FAIL, "pool 2040000 -> 1970000"),
        # a field that could not be read this time is no new configuration
        (node("unified", settings={}), PASS, ""),
        (node("unified", None, settings={"tp_size": 8}), PASS, ""),
    ],
)
def test_what_counts_as_a_change(after, verdict, said):
    history = History(gate_completed_at=NOON, previous=RECORD)
    result = judge(after, history=history)
    assert result.verdict is verdict, result.summary
    assert said in result.summary
    if verdict is FAIL:
        assert result.measures["changes"]["unified-0"]


@pytest.mark.parametrize(
    ("rules", "pool", "verdict"),
    [
        (Rules(), 1_311_000, PASS),
        (Rules(edge_limit=1_312_000), 1_311_000, FAIL),  # 0.2 %, but across the edge limit
        (Rules(context=1_050_000), 1_312_000, FAIL),  # across 1.25 x the declared context
        (
            Rules(context=1_050_001),
            1_312_501,
            FAIL,
        ),  # 1,312,502 are required: a part of a token short is short
    ],
)
def test_crossing_a_limit_is_a_change(rules, pool, verdict):
    start = node("unified", 1_314_000)
    history = History(gate_completed_at=NOON, previous={"unified-0": fingerprint(start.facts)})
    assert judge(node("unified", pool), history=history, rules=rules).verdict is verdict


def test_unread_and_new_nodes():
    history = History(gate_completed_at=NOON, previous=RECORD)
    assert judge(BEFORE, silent(), history=history).verdict is ERROR
    assert judge(history=history).verdict is INCONCLUSIVE
    assert judge(BEFORE, node("unified", name="new"), history=history).verdict is INCONCLUSIVE
    assert judge(node("unified", settings={"tp_size": 4}), silent(), history=history).verdict is FAIL


def test_results_are_plain_json():
    history = History(gate_completed_at=NOON, fingerprint_changed_at=NOON, previous=RECORD)
    for result in (judge(BEFORE), judge(replace(BEFORE, facts=node("unified").facts), history=history)):
        json.dumps(result.as_report(), allow_nan=False)
