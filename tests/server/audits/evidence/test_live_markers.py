"""Markers of 30 days: kept while they are planted, looked for by the next run, gone afterwards."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.text.markers import Marker, as_measure
from kvaudit.server.audits.evidence import live_markers
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import Kind, Planting, Result
from tests.server.audits.builders import a_run, a_target, result
from tests.waiting import until_async

pytestmark = pytest.mark.django_db

FIRST = Marker(("anchor", "basket", "candle", "dragon", "engine", "feather"), "tenant-a", "1")
DECOY = Marker(("garden", "hammer", "island", "jacket", "kettle", "ladder"), decoy=True)


def active(target, **fields):
    return a_run(target, kind=Kind.ACTIVE, checks=["canary"], **fields)


def planted(run, *markers, days=0.0):
    live_markers.keep(run, markers)
    Planting.objects.filter(run=run).update(sent_at=timezone.now() - timedelta(days=days))


def test_of_30_days_of_this_deployment_newest_first():
    target = a_target()
    planted(active(target), FIRST, days=29)
    planted(active(target), DECOY, days=1)
    planted(active(target), Marker(("other",) * 6), days=31)
    planted(active(a_target()), Marker(("stranger",) * 6))
    assert live_markers.earlier(active(target)) == (DECOY, FIRST)


def test_a_replay_does_not_look_for_what_its_own_seed_drew():
    """Its draws are the earlier ones, perhaps off by a word: five of six words would look like a leak."""
    target = a_target()
    planted(active(target, seed=7), FIRST)
    planted(active(target, seed=8), DECOY)
    planted(active(target), Marker(("unseeded",) * 6))
    assert live_markers.earlier(active(target, seed=7)) == (Marker(("unseeded",) * 6), DECOY)
    assert len(live_markers.earlier(active(target))) == 3


def test_what_is_older_goes():
    target = a_target()
    planted(active(target), FIRST, days=29)
    planted(active(target), DECOY, days=31)
    assert live_markers.prune() == 1
    assert Planting.objects.get().markers == [as_measure(FIRST)]


def test_the_next_run_looks_for_them_and_results_do_not_show_them(fake_runner, monkeypatch):
    target = a_target()
    given = []
    original = run_task.permission_of

    def watch(run, **hooks):
        given.append((original(run, **hooks), hooks["planted"]))
        return given[-1][0]

    monkeypatch.setattr(run_task, "permission_of", watch)
    fake_runner.says = {"canary": result("canary", measures={"n": 20, "live_markers": [as_measure(DECOY)]})}
    fake_runner.before = lambda target, cancelled: given[-1][1](FIRST)
    for _ in range(2):
        run_task.execute([active(target).pk], kind=Kind.ACTIVE)
    assert given[0][0].earlier == ()
    assert given[1][0].earlier == (FIRST, DECOY)
    assert [row.measures for row in Result.objects.all()] == [{"n": 20, "live_markers_kept": 1}] * 2
    assert Planting.objects.count() == 2


def test_a_worker_that_dies_leaves_what_it_planted(fake_runner, monkeypatch, settings):
    """Kept by the heartbeat, not by the end of the run."""
    settings.AUDIT_HEARTBEAT_SECONDS = 0.02
    target = a_target()
    hooks, kept = {}, []
    original, keep = run_task.permission_of, live_markers.keep
    monkeypatch.setattr(
        run_task, "permission_of", lambda run, **them: hooks.update(them) or original(run, **them)
    )
    monkeypatch.setattr(live_markers, "keep", lambda *given: kept.append(keep(*given)))
    monkeypatch.setattr(
        "kvaudit.server.audits.execution.recording.finish", lambda batch: set()
    )  # the end never comes

    async def before(target, cancelled):
        hooks["planted"](FIRST)
        await until_async(lambda: kept, "a heartbeat has kept it")
        raise RuntimeError("dies")

    fake_runner.before = before
    run_task.execute([active(target).pk], kind=Kind.ACTIVE)
    assert Planting.objects.get().markers == [as_measure(FIRST)]
