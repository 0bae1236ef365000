"""After a prompt that stopped a server from answering, nothing sends such a prompt again by itself.

The deployment's active checks are suspended: a pause that kvaudit sets, and that only a person with the role for
pausing ends, saying why. It outlives plans, retries and changes of the build, since a person knows which of these
mends the server. State (the pause), timeline and ledger hold both ends of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.audits.models import Result, Run, StateChange
from kvaudit.server.fleet.models import Deployment, Pause
from kvaudit.server.fleet.services import resume_probes, suspend_probes

WEDGED = "wedged"
"""The measure of a result: "yes" or "suspected" (`kvaudit.auditor.prober.silence`)."""


def suspensions(run: Run, rows: Iterable[Result]) -> list[StateChange]:
    """Suspend where one of these new results says so; returns the rows for the timeline, not saved."""
    for row in rows:
        if row.measures.get(WEDGED):
            return suspend(run, row.summary, row.check_id)
    return []


def suspend(run: Run, why: str, check: str = "") -> list[StateChange]:
    """Suspend the active checks of this run's deployment; nothing where they are suspended already."""
    build = f" Build {run.fingerprint[:12]}." if run.fingerprint else ""
    reason = f"Run {run.pk}{', ' + check if check else ''}: {why}"
    if not suspend_probes(deployment=run.deployment, reason=f"{reason[: 500 - len(build)]}{build}"):
        return []
    return [
        StateChange(
            at=clock.now(),
            deployment_id=run.deployment_id,
            run=run,
            what=StateChange.What.SUSPENDED,
            check_id=check,
            summary=f"Active checks are suspended until an operator resumes them. {why}",
            detail={"fingerprint": run.fingerprint},
        )
    ]


@transaction.atomic
def resume(*, deployment: Deployment, actor: Actor, reason: str = "") -> None:
    """End a pause or a suspension. ValueError with a sentence where a suspension is to end without a reason."""
    suspended = suspended_since(deployment)
    resume_probes(actor=actor, deployment=deployment, reason=reason)
    if suspended is not None:
        StateChange.objects.create(
            at=clock.now(),
            deployment=deployment,
            what=StateChange.What.RESUMED,
            summary=f"Active checks were resumed by {actor_name(actor)}: {reason}",
        )


def suspended_since(deployment: Deployment) -> Pause | None:
    """The suspension that holds now, None where there is none."""
    pauses = Pause.objects.current().filter(deployment=deployment)
    return next((pause for pause in pauses if pause.suspended), None)
