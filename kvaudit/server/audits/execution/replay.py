"""Draws the seeds of active runs, and queues a run that asks an earlier one's lengths again.

Every active run keeps a seed: 63 bits out of the system's own randomness, so that nobody can guess the
next markers, and who must show a fix can draw the same ones again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta

from django.db import transaction

from kvaudit.auditor import checks as known_checks
from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.execution import enqueue, suspension
from kvaudit.server.audits.models import Kind, Run, Trigger
from kvaudit.server.audits.state.intervals import lock_deployments
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

PATIENCE = timedelta(hours=1)


class ReplayProblem(ValueError):
    """A replay that cannot be asked for; the text is a sentence for the person who asked."""


def draw_seeds(runs: Iterable[Run]) -> None:
    """Give every active run that has none its seed, before anything is sent."""
    for run in runs:
        if run.kind == Kind.ACTIVE and run.seed is None:
            run.seed = secrets.randbits(63)
            Run.objects.filter(pk=run.pk, seed=None).update(seed=run.seed)


@transaction.atomic
def replay(*, original: Run, checks: Sequence[str], lengths: Sequence[int], actor: Actor) -> Run:
    """Queue an active run that asks again what ``original`` asked: its seed, and ``lengths`` (tokens)
    beside the ladder of today. Raises ReplayProblem, PermissionDenied.

    After a fix the engine answers otherwise, so that the order of requests may part from the original's;
    lengths and first draws do not.
    """
    deployment = original.deployment
    require(actor, "run_audits", deployment.team)
    wanted = [check for check in known_checks.ACTIVE if check in checks]
    if not wanted:
        raise ReplayProblem("Nothing that sends prompts failed in that run, so nothing can be replayed.")
    if original.seed is None:
        raise ReplayProblem("That run kept no seed, so its prompts cannot be drawn again.")
    lock_deployments([deployment.pk])
    if deployment.retired_at is not None:
        raise ReplayProblem(f"{deployment.slug} is retired: nothing is audited there any more.")
    if suspension.suspended_since(deployment) is not None:
        raise ReplayProblem(
            f"Checks that send prompts are suspended for {deployment.slug}, because its server stopped answering: an "
            "operator resumes them on the deployment's page before anything is replayed."
        )
    now = clock.now()
    run = Run.objects.create(
        deployment=deployment,
        kind=Kind.ACTIVE,
        trigger=Trigger.MANUAL,
        checks=wanted,
        seed=original.seed,
        replayed_lengths=sorted(set(lengths)),
        retry_of=original,
        actor=actor if isinstance(actor, User) else None,
        not_before=now,
        expires_at=now + PATIENCE,
        rung_at=now,
        rings=1,
    )
    enqueue.enqueue_run(run)
    record(
        actor=actor,
        kind="run.replay_requested",
        subject=f"run:{run.pk} of run:{original.pk}",
        digest=digest_of([wanted, run.replayed_lengths, original.pk]),
    )
    return run
