"""Several processes behind one address: what the passive checks say when they answered, and when they may have."""

from dataclasses import replace

import pytest

from kvaudit.auditor.checks import get
from kvaudit.auditor.checks.contract import History
from kvaudit.auditor.checks.replicas import differences, distinct, processes
from kvaudit.auditor.readings import fingerprint, read, unknown
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.audits import CONTEXT, audit, node

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
QUIET = {"pd_disaggregation": False, "hicache_storage": False}


def facts(started="1.0", **changed):
    given = node("unified", process=read(started, "startup_time"), conditions=QUIET, **changed).facts
    assert given is not None
    return given


def behind(*others, replicas=0, **changed):
    """One node, and the further processes that answered at its address."""
    one = node("unified", name="vip", process=read("1.0", "startup_time"), conditions=QUIET)
    return replace(one, others=others, connections=8, replicas=replicas, **changed)


@pytest.mark.parametrize("check", ["pool", "version"])
@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        (behind(), PASS, ""),
        (behind(facts("2.0")), INCONCLUSIVE, "several processes answer at the address of vip"),
        (behind(facts("2.0"), replicas=2), PASS, ""),
        (behind(facts("2.0"), replicas=3), INCONCLUSIVE, "3 replicas were declared behind vip, and 2 answered in 8"),
        (behind(facts("2.0"), facts("3.0"), replicas=2), INCONCLUSIVE, "2 replicas were declared"),
        (behind(facts("2.0", pool=3_000_000), replicas=2), INCONCLUSIVE, "KV pool 2,040,000 against 3,000,000"),
        (behind(facts("2.0", pool=2_041_000), replicas=2), PASS, ""),  # redrawn at each start
        (behind(facts("2.0", version="0.5.23"), replicas=2), INCONCLUSIVE, "version 0.5.22 against 0.5.23"),
        (behind(facts("2.0", settings={"page_size": 1}), replicas=2), PASS, ""),  # the first does not tell its own
        (behind(facts("1.0", pool=2_041_000)), INCONCLUSIVE, "does not say the same over two connections"),
        (behind(unanswered="GET /server_info: refused."), INCONCLUSIVE, "answered one connection and not another"),
        (behind(replicas=1), PASS, ""),
    ],
)  # fmt: skip
def test_one_address_may_lead_to_several_processes(check, given, verdict, said):
    result = get(check).judge(None, audit(given))
    assert result.verdict is verdict, result.summary
    assert said in result.summary
    if verdict is INCONCLUSIVE:
        assert "process" in result.next


def test_a_process_that_fails_is_evidence_whoever_answered_first():
    """Redteam case node_vip: one of four replicas has a small pool."""
    result = get("pool").judge(None, audit(behind(facts("2.0", pool=681_280))))
    assert result.verdict is FAIL
    assert "vip (process 2) holds 681,280" in result.summary
    assert "one unified node" in result.summary  # one address
    old = get("version").judge(None, audit(behind(facts("2.0", version="0.5.19"), replicas=2)))
    assert (old.verdict, "0.5.19 is outside the pin" in old.summary) == (FAIL, True)


def test_drift_does_not_pass_on_one_of_several():
    given = behind(facts("2.0"))
    assert given.facts is not None
    now = fingerprint(given.facts)
    from datetime import UTC, datetime

    history = History(gate_completed_at=datetime(2026, 1, 1, tzinfo=UTC), previous={"vip": now})
    assert get("drift").judge(None, audit(given, history=history)).verdict is INCONCLUSIVE
    assert get("drift").judge(None, audit(behind(), history=history)).verdict is PASS


def test_only_what_both_know_from_one_source_is_compared():
    one = facts(context=CONTEXT)
    assert differences(one, replace(one, context=unknown("x"))) == []
    assert differences(one, replace(one, context=read(2048, "elsewhere"))) == []
    assert differences(one, replace(one, context=read(2048, "GET /server_info"))) == [
        "context 1,048,576 against 2,048"
    ]
    assert not distinct(one, replace(one, process=unknown("hidden")))


def test_further_processes_are_named_after_their_address():
    assert [each.name for each in processes(audit(behind(facts("2.0"))))] == ["vip", "vip (process 2)"]
