"""Numbers across runs: in order, of the same fingerprint, and of attempts that concluded something."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.checks.contract import History
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import Kind, Result
from kvaudit.server.audits.state import earlier_runs
from tests.server.audits.builders import a_run, a_target, result

pytestmark = pytest.mark.django_db


def concluded(target, check, measures, *, days, verdict="pass", attempt=1, run=None):
    run = run or a_run(target, kind=Kind.ACTIVE, checks=[check])
    Result.objects.create(
        run=run,
        deployment=target,
        attempt=attempt,
        check_id=check,
        verdict=verdict,
        summary="x",
        measures=measures,
        observed_at=timezone.now() - timedelta(days=days),
    )
    return run


def test_pool_use_and_residuals_oldest_first_since_the_change():
    target = a_target()
    concluded(target, "rejection", {"pool_use_after": 9}, days=9)
    concluded(target, "rejection", {"pool_use_after": 100}, days=3)
    concluded(target, "rejection", {"pool_use_after": None}, days=2)
    concluded(target, "rejection", {"pool_use_after": 7}, days=1, verdict="error")
    concluded(target, "rejection", {"pool_use_after": 200.5}, days=1)
    concluded(target, "prefill", {"median_residual": -0.25}, days=1, verdict="inconclusive")
    concluded(a_target(), "prefill", {"median_residual": 4}, days=1)
    since = timezone.now() - timedelta(days=5)
    found = earlier_runs.with_measures(History(fingerprint_changed_at=since), target)
    assert found.pool_use_after == (100, 200.5)
    assert found.prefill_residuals == (-0.25,)
    assert earlier_runs.with_measures(History(), target).pool_use_after == (9, 100, 200.5)


def test_active_runs_are_given_them(fake_runner):
    target = a_target()
    concluded(target, "rejection", {"pool_use_after": 100}, days=3)
    run_task.execute([a_run(target, kind=Kind.ACTIVE, checks=["rejection"]).pk], kind=Kind.ACTIVE)
    run_task.execute([a_run(target).pk], kind=Kind.PASSIVE)
    assert [history.pool_use_after for history in fake_runner.histories] == [(100,), ()]


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([], (1, 480, 0, 0.0125)),
        ([(480, 0, 0.9)], (2, 960, 0, 0.00623)),  # by the lesser surfacing
        ([(480, 1, 0.5)], (2, 960, 1, 0.0099)),
        ([(0, 0, 0.5), (None, 0, 0.5)], (1, 480, 0, 0.0125)),
    ],
)
def test_the_bound_of_runs_under_load_together(fake_runner, earlier, expected):
    target = a_target()
    for valid, hits, surfacing in earlier:
        measures = {"valid_under_load": valid, "hits_under_load": hits, "surfacing": surfacing}
        concluded(target, "concurrency", measures, days=1)
    measures = {"valid_under_load": 480, "hits_under_load": 0, "surfacing": 0.5}
    fake_runner.says = {"concurrency": result("concurrency", Verdict.PASS, measures=measures)}
    run = a_run(target, kind=Kind.ACTIVE, checks=["concurrency"])
    run_task.execute([run.pk], kind=Kind.ACTIVE)
    pooled = Result.objects.get(run=run).measures["pooled"]
    found = (pooled["runs"], pooled["valid_under_load"], pooled["hits_under_load"])
    assert found == expected[:3]
    assert pooled["bound"] == pytest.approx(expected[3], abs=2e-4)
