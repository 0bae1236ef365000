"""Does what people ask for: audit now, cancel. Plans are in `planning`, their defaults in `defaults`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.verdict import Verdict, worse
from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.execution import enqueue, recording, run_verdict, suspension
from kvaudit.server.audits.execution.outcome import Outcome
from kvaudit.server.audits.models import Kind, Run, RunState, Trigger, Where
from kvaudit.server.audits.schedule.defaults import ensure_default_plans, missing_for
from kvaudit.server.audits.schedule.plans import (
    PlanProblem,
    PlanSpec,
    change_plan,
    create_plan,
    kind_of,
    retire_plan,
)
from kvaudit.server.audits.state.intervals import lock_deployments
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

__all__ = (
    "AuditProblem",
    "PlanProblem",
    "PlanSpec",
    "audit_now",
    "change_plan",
    "create_plan",
    "ensure_default_plans",
    "missing_for",
    "request_cancel",
    "retire_plan",
)

PATIENCE = timedelta(hours=1)
"""How long a run that somebody asked for may wait for a worker."""


class AuditProblem(ValueError):
    """An audit that cannot be started; the text is a sentence for the person who asked."""


@transaction.atomic
def audit_now(
    *, deployment: Deployment, actor: Actor, checks: Sequence[str] = (), where: Where = Where.PRODUCTION
) -> Run:
    """Queue a run and send it to a worker at once; without ``checks``, all passive ones. ``where``: what its replicas
    serve meanwhile.

    Asking again while the same audit waits or runs gives that run. Raises AuditProblem with a
    sentence, PermissionDenied for whoever may not.
    """
    require(actor, "run_audits", deployment.team)
    wanted = [check for check in known_checks.MODULES if check in (checks or known_checks.PASSIVE)]
    unknown = sorted(set(checks) - set(known_checks.MODULES))
    if unknown:
        raise AuditProblem(known_checks.no_such(unknown[0]))
    kinds = {kind_of(check) for check in wanted}
    if len(kinds) > 1:
        raise AuditProblem("Passive and active checks are separate audits: ask for one kind at a time.")
    lock_deployments([deployment.pk])
    if deployment.retired_at is not None:
        raise AuditProblem(f"{deployment.slug} is retired: nothing is audited there any more.")
    if Kind.ACTIVE in kinds and (suspended := suspension.suspended_since(deployment)) is not None:
        raise AuditProblem(
            f"Checks that send prompts are suspended for {deployment.slug} since {suspended.valid_from:%Y-%m-%d %H:%M} "
            "UTC, because its server stopped answering: an operator resumes them on the deployment's page."
        )
    pending = Run.objects.pending().filter(
        deployment=deployment, trigger=Trigger.MANUAL, checks=wanted, where=where, cancel_requested_at=None
    )
    if (same := pending.first()) is not None:
        return same
    now = clock.now()
    run = Run.objects.create(
        deployment=deployment,
        kind=kinds.pop(),
        trigger=Trigger.MANUAL,
        checks=wanted,
        where=where,
        actor=actor if isinstance(actor, User) else None,
        not_before=now,
        expires_at=now + PATIENCE,
        rung_at=now,
        rings=1,
    )
    enqueue.enqueue_run(run)
    record(
        actor=actor,
        kind="run.requested",
        subject=f"run:{run.pk}",
        digest=digest_of([deployment.slug, wanted, *([] if where is Where.PRODUCTION else [where.value])]),
    )
    return run


@transaction.atomic
def request_cancel(*, run: Run, actor: Actor) -> bool:
    """Cancel a queued run now, a running one within seconds. False when it had ended already.

    A cancelled run has a verdict, never *pass*: what was finished counts, what was not is missing.
    """
    require(actor, "run_audits", run.deployment.team)
    locked = Run.objects.select_for_update(no_key=True, of=("self",)).select_related("plan").get(pk=run.pk)
    if locked.ended:
        return False
    if locked.cancel_requested_at is None:
        locked.cancel_requested_at = clock.now()
        locked.cancel_requested_by = actor if isinstance(actor, User) else None
        locked.save(update_fields=["cancel_requested_at", "cancel_requested_by"])
    if locked.state == RunState.QUEUED:
        rows = {locked.pk: list(locked.results.all())}
        locked.state, locked.summary = RunState.CANCELLED, "Cancelled before it ran."
        # A fail that the first attempt found before its worker was lost stands.
        locked.verdict = worse(
            run_verdict.verdict_of(locked.checks, rows[locked.pk]), Verdict.INCONCLUSIVE
        ).value
        ended = Outcome({locked.pk: locked}, rows=rows)
        recording.store_ends(ended)
        recording.enter_in_ledger(ended)
    record(actor=actor, kind="run.cancel_requested", subject=f"run:{run.pk}")
    return True
