"""Suspends probes after a prompt that stopped a server from answering: nothing sends such a prompt again by
itself.

The active checks of the deployment, and of every other one that runs the same build in the same configuration, are
suspended: a pause that kvaudit sets, and that only a person with the role for pausing ends, saying why, for each
deployment. It outlives plans, retries and changes of the build, since a person knows which of these mends the server.
State (the pause), timeline and ledger hold both ends of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Subquery

from kvaudit.server import clock
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.audits import alerts
from kvaudit.server.audits.models import Result, Run, StateChange
from kvaudit.server.fleet.models import Deployment, Pause
from kvaudit.server.fleet.services import resume_probes, suspend_probes

WEDGED = "wedged"
"""The measure of a result: "yes" or "suspected" (`kvaudit.auditor.prober.silence`)."""


def suspensions(run: Run, rows: Iterable[Result]) -> list[StateChange]:
    """Suspend where one of these new results says so; returns the rows for the timeline, not saved."""
    for row in rows:
        if row.measures.get(WEDGED):
            made = suspend(run, row.summary, row.check_id)
            if made and row.measures[WEDGED] == "yes":
                transaction.on_commit(partial(_suspend_brothers, run, row), robust=True)
            return made
    return []


def suspend(run: Run, why: str, check: str = "") -> list[StateChange]:
    """Suspend the active checks of this run's deployment; nothing where they are suspended already."""
    build = f" Build {run.fingerprint[:12]}." if run.fingerprint else ""
    reason = f"Run {run.pk}{', ' + check if check else ''}: {why}"
    if not suspend_probes(deployment=run.deployment, reason=f"{reason[: 500 - len(build)]}{build}"):
        return []
    return [_change(run.deployment_id, why, run.fingerprint, run=run, check_id=check)]


def _suspend_brothers(run: Run, row: Result) -> None:
    """Suspend the other deployments that were last seen with this very fingerprint: their night would bring the same
    prompt. They may be another team's, so they hear of the length and the build, not of whose server it was.

    After the commit of what was found, each in a transaction of its own: two that stop at once must not wait for each
    other with their results in hand."""
    if not run.fingerprint:
        return
    last = Run.objects.filter(deployment=OuterRef("pk")).exclude(fingerprint="").order_by("-pk")
    brothers = (
        Deployment.objects.active()
        .exclude(pk=run.deployment_id)
        .alias(last=Subquery(last.values("fingerprint")[:1]))
        .filter(last=run.fingerprint)
        .order_by("pk")
    )
    tokens = row.measures.get("wedged_tokens")
    prompt = f"a prompt of {tokens:,} tokens" if isinstance(tokens, int) else "a long prompt"
    why = (
        f"Another deployment of this build ({run.fingerprint[:12]}) answered nothing any more after {prompt}."
    )
    for brother in brothers:
        with transaction.atomic():
            if suspend_probes(deployment=brother, reason=why):
                alerts.save_and_notify([_change(brother.pk, why, run.fingerprint)])


def _change(deployment_id: int, why: str, fingerprint: str, **fields: Any) -> StateChange:
    return StateChange(
        at=clock.now(),
        deployment_id=deployment_id,
        what=StateChange.What.SUSPENDED,
        summary=f"Active checks are suspended until an operator resumes them. {why}",
        detail={"fingerprint": fingerprint},
        **fields,
    )


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
