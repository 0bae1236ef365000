"""Seeds of active runs, and asking the same again."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.server.audits.execution import permissions, replay
from kvaudit.server.audits.models import Kind
from kvaudit.server.ledger.models import Entry
from tests.factories import a_user
from tests.server.audits.builders import a_run, a_target

pytestmark = pytest.mark.django_db


def an_active_run(**fields):
    return a_run(a_target(), checks=["rejection", "canary"], kind=Kind.ACTIVE, **fields)


def test_every_active_run_gets_a_seed_of_its_own_once():
    first, second, passive = an_active_run(), an_active_run(), a_run(a_target())
    replay.draw_seeds([first, second, passive])
    assert first.seed != second.seed
    assert passive.seed is None
    drawn = first.seed
    replay.draw_seeds([first])
    first.refresh_from_db()
    assert first.seed == drawn


def test_what_a_run_may_do_carries_its_seed_and_lengths():
    run = an_active_run(seed=7, replayed_lengths=[5_322])
    found = permissions.permission_of(
        run, stopped=lambda: "", planted=lambda marker: None, spent=TokenUsage(ceiling=1)
    )
    assert (found.seed, found.replayed) == (7, (5_322,))


def test_a_replay_is_an_active_run_of_the_failing_checks():
    original = an_active_run(seed=7)
    operator = a_user(team=original.deployment.team, role="operator")
    made = replay.replay(original=original, checks=["canary", "pool"], lengths=[9, 5, 9], actor=operator)
    assert (made.kind, made.checks, made.seed, made.replayed_lengths) == ("active", ["canary"], 7, [5, 9])
    assert (made.retry_of, made.actor) == (original, operator)
    assert Entry.objects.filter(kind="run.replay_requested").count() == 1


@pytest.mark.parametrize(
    ("checks", "seed", "said"), [(["pool"], 7, "sends prompts"), (["canary"], None, "no seed")]
)
def test_what_cannot_be_replayed_says_why(checks, seed, said):
    original = an_active_run(seed=seed)
    with pytest.raises(replay.ReplayProblem, match=said):
        replay.replay(original=original, checks=checks, lengths=[], actor="system:tests")


def test_a_retired_deployment_is_asked_nothing():
    original = an_active_run(seed=7)
    type(original.deployment).objects.update(retired_at=timezone.now())
    original.deployment.refresh_from_db()
    with pytest.raises(replay.ReplayProblem, match="retired"):
        replay.replay(original=original, checks=["canary"], lengths=[], actor="system:tests")


def test_readers_replay_nothing():
    original = an_active_run(seed=7)
    reader = a_user(team=original.deployment.team, role="auditor")
    with pytest.raises(PermissionDenied):
        replay.replay(original=original, checks=["canary"], lengths=[], actor=reader)
