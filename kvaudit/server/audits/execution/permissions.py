"""Decides what an active run may do: tokens of the day, text to seal, markers to look for, and why it must
stop. Consent comes with the target."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import cast

from django.db.models import Max, Sum

from kvaudit.auditor.checks.serving import Where as Serves
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.auditor.text.markers import Marker
from kvaudit.server import clock
from kvaudit.server.audits import options
from kvaudit.server.audits.evidence import live_markers
from kvaudit.server.audits.evidence.sealed_text import sealer
from kvaudit.server.audits.models import Kind, Run, Trigger
from kvaudit.server.audits.schedule import windows
from kvaudit.server.fleet.models import Deployment, NodeSnapshot, Pause

DAY = timedelta(days=1)
CHECKS_A_DAY = 4
"""The default ceiling of a day is this many times that of one check."""


def permission_of(
    run: Run, *, stopped: Callable[[], str], planted: Callable[[Marker], None], spent: TokenUsage
) -> Permission | None:
    """None for a run that only reads. The callables are asked by the event loop, so they must not wait."""
    if run.kind != Kind.ACTIVE:
        return None
    return Permission(
        seed=run.seed,
        replayed=tuple(run.replayed_lengths),
        daily_left=daily_left(run.deployment),
        stopped=stopped,
        seal=sealer(),
        earlier=live_markers.earlier(run),
        planted=planted,
        spent=spent,
        where=cast(Serves, run.where),
    )


def daily_ceiling(deployment: Deployment) -> int:
    """Prompt tokens that a deployment may be sent within 24 hours."""
    if (given := options.daily_prompt_tokens()) is not None:
        return given
    read = NodeSnapshot.objects.filter(current=True, node__deployment=deployment, node__valid_to=None)
    context = max(deployment.context or 0, read.aggregate(most=Max("context"))["most"] or 0)
    return CHECKS_A_DAY * max(20_000_000, 80 * context)


def daily_left(deployment: Deployment) -> int:
    """Prompt tokens of the ceiling that no attempt of the last 24 hours has spent."""
    lately = Run.objects.filter(deployment=deployment, kind=Kind.ACTIVE, started_at__gte=clock.now() - DAY)
    spent: int = lately.aggregate(spent=Sum("tokens_spent"))["spent"] or 0
    return max(0, daily_ceiling(deployment) - spent)


def why_stop(run: Run) -> str:
    """The sentence why this run may send nothing more now, or "". Cancellation and lost leases are seen
    by the heartbeat."""
    pause = Pause.objects.current().applying_to(run.deployment).first()
    if pause is not None:
        whose = f"of {run.deployment.slug}" if pause.deployment_id else "of the whole fleet"
        return f"Active checks {whose} were paused by {pause.paused_by} while this ran."
    if run.trigger == Trigger.MANUAL:
        return ""  # a person who asked has seen the clock
    now = clock.now()
    own = run.plan.windows if run.plan else []
    if windows.next_open(now, run.deployment.windows, own) != now:
        return "The window for active audits closed while this ran."
    return ""
