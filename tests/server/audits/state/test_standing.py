"""State of a check whose evidence accumulates follows all runs; each result stays what its run showed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import CheckState, Kind, Result, StateChange
from kvaudit.server.audits.state import record_check, standing
from tests.canary_evidence import evidence
from tests.server.audits.builders import FakeRunner, a_run, a_target, result

pytestmark = pytest.mark.django_db


@pytest.fixture
def audit(fake_runner: FakeRunner, monkeypatch: pytest.MonkeyPatch):
    """Runs the canary once, so many days ago, with what it says; returns the state after it."""
    target = a_target("glm-prod")

    def audited(
        days_ago: float, verdict: Verdict = Verdict.INCONCLUSIVE, *, severity: str = "", **measures: object
    ) -> CheckState:
        at = timezone.now() - timedelta(days=days_ago)
        monkeypatch.setattr(clock, "now", lambda: at)
        fake_runner.says["canary"] = result(
            "canary", verdict, f"alone {verdict}", severity=severity, measures=measures
        )
        run = a_run(target, checks=("canary",), kind=Kind.ACTIVE)
        run_task.execute([run.pk], kind=run.kind)
        run.refresh_from_db()
        assert run.state == "finished"
        return CheckState.objects.get(deployment=target, check_id="canary", closed_at=None)

    audited.target = target
    return audited


def thin(**said: object) -> dict[str, object]:
    return {"doubt": "", "evidence": evidence(**said)}


def test_nights_that_decide_nothing_alone_come_to_a_pass(audit):
    first = audit(3, **thin(boundary=12, other=1))
    assert (first.verdict, first.result.verdict) == ("inconclusive", "inconclusive")
    assert "the boundary has 12.0 of 20" in first.summary
    assert "kvaudit qualify" in first.result.measures["accumulated"]["next"]
    second = audit(2, **thin(boundary=12, other=1))
    assert (second.verdict, second.result.verdict) == ("pass", "inconclusive")
    assert second.summary.startswith("Fewer than 12% of requests drawn like these leak (95 % confidence")
    assert second.result.summary == "alone inconclusive"
    assert record_check.doubts(audit.target) == []


def test_a_pass_by_itself_is_not_green_without_the_boundary(audit):
    state = audit(1, Verdict.PASS, **thin(other=90))
    assert (state.verdict, state.result.verdict) == ("inconclusive", "pass")
    assert record_check.doubts(audit.target) == []


def test_green_lasts_as_long_as_its_evidence_is_fresh(audit):
    audit(5, **thin(boundary=21))
    state = audit(1, **thin(other=1))
    assert state.verdict == "pass"
    assert state.expires_at - timezone.now() < timedelta(days=2.1)


def test_another_build_starts_anew(audit):
    audit(2, **thin(boundary=30))
    assert audit(1, **thin(boundary=1, build="b2")).verdict == "inconclusive"


def test_a_result_from_before_evidence_was_kept_says_what_it_says(audit):
    state = audit(3, Verdict.PASS, effective_trials=60.0)
    assert (state.verdict, state.summary) == ("pass", "alone pass")
    assert "accumulated" not in state.result.measures
    assert audit(2, **thin(boundary=5)).verdict == "inconclusive"  # and it counts nothing


def test_an_inconclusive_run_that_says_no_more_is_a_doubt(audit):
    audit(2, **thin(boundary=30))
    assert audit(1, evidence=evidence(boundary=2)).verdict == "inconclusive"
    assert audit(0.9, **thin(boundary=8)).verdict == "pass"


def test_an_error_learns_nothing(audit):
    audit(2, **thin(boundary=30))
    assert audit(1, Verdict.ERROR, **thin(boundary=30)).verdict == "error"


class TestHits:
    def test_no_clean_run_takes_a_leak_back(self, audit):
        audit(9, Verdict.FAIL, severity="critical", **thin(boundary=9, hits=1))
        state = audit(8, Verdict.PASS, **thin(boundary=60))
        assert (state.verdict, state.severity, state.result.verdict) == ("fail", "critical", "pass")
        assert "nobody has recorded a fix" in state.summary
        assert record_check.doubts(audit.target) == []

    def test_until_a_fix_is_recorded_and_the_build_has_shown_more(self, audit):
        audit(9, Verdict.FAIL, severity="critical", **thin(boundary=9, hits=1))
        standing.note_fix(audit.target, "canary", timezone.now() - timedelta(days=8), "edge limit set")
        assert StateChange.objects.filter(what="fixed", check_id="canary").count() == 1
        again = audit(7, **thin(boundary=24))
        assert again.verdict == "inconclusive"
        assert "24.0 of 25 effective trials" in again.summary
        assert audit(6, **thin(boundary=24)).verdict == "pass"

    def test_a_fix_of_another_check_is_none_of_the_canary(self, audit):
        audit(9, Verdict.FAIL, severity="critical", **thin(hits=1))
        standing.note_fix(audit.target, "rejection", timezone.now() - timedelta(days=8), "upgraded")
        assert audit(7, **thin(boundary=60)).verdict == "fail"

    def test_a_leak_whose_evidence_cannot_be_read_is_one(self, audit):
        audit(9, Verdict.FAIL, severity="critical", evidence=["?"])
        assert audit(8, **thin(boundary=60)).verdict == "fail"

    def test_harm_is_no_leak(self, audit):
        audit(9, Verdict.FAIL, severity="high", **thin(boundary=9))
        assert audit(8, **thin(boundary=60)).verdict == "pass"

    def test_what_an_old_pass_took_back_stays_taken_back(self, audit):
        audit(20, Verdict.FAIL, severity="critical")
        assert audit(10, **thin(boundary=60)).verdict == "fail"
        audit(9, Verdict.PASS)
        assert audit(8, **thin(boundary=60)).verdict == "pass"


def test_a_state_that_says_more_than_all_runs_do_is_forged(audit):
    state = audit(1, **thin(boundary=1))
    CheckState.objects.filter(pk=state.pk).update(verdict="pass")
    assert "is not what result" in record_check.doubts(audit.target)[0]


def test_a_result_that_is_given_more_differs_from_the_ledger(audit):
    state = audit(1, **thin(boundary=1))
    told = state.result.measures
    Result.objects.filter(pk=state.result_id).update(
        measures=told | {"accumulated": told["accumulated"] | {"verdict": "pass"}}
    )
    CheckState.objects.filter(pk=state.pk).update(verdict="pass")
    assert record_check.doubts(audit.target)
