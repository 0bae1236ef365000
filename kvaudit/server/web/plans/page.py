"""Plans: what runs where and when, in words, with the next slots worked out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django.db.models import Count, Prefetch, Q

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import Kind, Plan, Run
from kvaudit.server.audits.schedule.plans import schedule_of
from kvaudit.server.fleet.models import SUSPENDER, Deployment, DeploymentQuerySet, Pause
from kvaudit.server.web.kit.parts import windows
from kvaudit.server.web.plans import lengths

NEXT_SLOTS = 5
RECENT_RUNS = 15
MOST_PLANS = 500
NAMED = 3


@dataclass(frozen=True, slots=True)
class PlanRow:
    plan: Plan
    when: str
    where: str


@dataclass(frozen=True, slots=True)
class PlanPage:
    plan: Plan
    when: str
    deployments: Sequence[Deployment]
    slots: Sequence[datetime]
    windows: Sequence[str]
    versions: Sequence[Plan]
    runs: Sequence[Run]
    suspended: Sequence[Pause]
    others: int  # deployments it selects that the reader may not see


def plan_rows(user: User) -> list[PlanRow]:
    """Every open plan that selects something the user sees, by next due time."""
    names = Deployment.objects.visible_to(user).order_by("slug")
    plans = (
        Plan.objects.current()
        .visible_to(user)
        .select_related("team")
        .annotate(named=Count("deployments"))
        .prefetch_related(Prefetch("deployments", names[:NAMED], to_attr="seen"))
        .order_by("-enabled", "next_due", "name", "pk")[:MOST_PLANS]
    )
    return [
        PlanRow(
            plan,
            when(plan),
            where(plan, vars(plan)["named"], [deployment.slug for deployment in vars(plan)["seen"]]),
        )
        for plan in plans
    ]


def when(plan: Plan) -> str:
    """``every 1 h`` or ``cron 0 2 * * * (Europe/Berlin)``."""
    if plan.interval is not None:
        return f"every {lengths.written(plan.interval)}"
    return f"cron {plan.cron} ({plan.zone})"


def where(plan: Plan, named: int, seen: Sequence[str]) -> str:
    """What it selects: of ``named`` deployments those that the reader has ``seen`` (the first few), and how many
    more there are."""
    parts = []
    if more := named - len(seen):
        parts.append(f"{more:,} {'more' if seen else 'named'} deployment{'' if more == 1 else 's'}")
    if seen:
        parts.insert(0, ", ".join(seen))
    if plan.team and plan.engine:
        parts.append(f"{plan.engine} deployments of team {plan.team.slug}")
    elif plan.team:
        parts.append(f"team {plan.team.slug}")
    elif plan.engine:
        parts.append(f"every {plan.engine} deployment")
    return " and ".join(parts) or "nothing"


def plan_page(plan: Plan, user: User) -> PlanPage:
    now = clock.now()
    selected = selected_by(plan)
    visible = Deployment.objects.visible_to(user).filter(pk__in=selected)
    shown = list(visible.select_related("team").order_by("slug")[:MOST_PLANS])
    open_version = plan.valid_to is None and plan.enabled
    return PlanPage(
        plan=plan,
        when=when(plan),
        deployments=shown,
        slots=list(islice(schedule_of(plan).after(now), NEXT_SLOTS)) if open_version else [],
        windows=[windows.line(window) for window in plan.windows],
        versions=list(
            Plan.objects.filter(series=plan.series).select_related("created_by").order_by("-valid_from")
        ),
        runs=list(
            Run.objects.filter(plan__series=plan.series)
            .visible_to(user)
            .select_related("deployment")
            .before(None)[:RECENT_RUNS]
        ),
        suspended=_suspended(plan, visible),
        others=selected.exclude(pk__in=Deployment.objects.visible_to(user)).count(),
    )


def _suspended(plan: Plan, visible: DeploymentQuerySet) -> list[Pause]:
    """Where kvaudit itself keeps this plan from sending prompts."""
    if plan.kind != Kind.ACTIVE:
        return []
    held = Pause.objects.current().filter(paused_by=SUSPENDER, deployment__in=visible)
    return list(held.select_related("deployment").order_by("valid_from")[:MOST_PLANS])


def selected_by(plan: Plan) -> DeploymentQuerySet:
    """Active deployments that the plan selects, explicitly or by team and engine."""
    chosen = Q(plans=plan.pk)
    if plan.team_id is not None or plan.engine:
        by_rule = Q()
        if plan.team_id is not None:
            by_rule &= Q(team_id=plan.team_id)
        if plan.engine:
            by_rule &= Q(engine=plan.engine)
        chosen |= by_rule
    return Deployment.objects.active().filter(pk__in=Deployment.objects.filter(chosen).values("pk"))


def may_edit(user: User, plan: Plan) -> bool:
    """Whether the user operates everything the plan reaches: a plan is changed as a whole."""
    if can(user, "edit_plans"):
        return True
    if plan.engine and plan.team_id is None:
        return False
    if plan.team_id is not None and not can(user, "edit_plans", plan.team_id):
        return False
    teams = plan.deployments.order_by().values_list("team_id", flat=True).distinct()
    return all(can(user, "edit_plans", team_id) for team_id in teams)
