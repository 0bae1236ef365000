"""Makes the plans that every deployment starts with, and says what keeps a check from running on one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import transaction

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.fleetfile import FleetPlan
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.audits.models import Plan
from kvaudit.server.audits.schedule.plans import PlanSpec, create_plan
from kvaudit.server.fleet.models import Consent, Deployment, Tenant

HOUR, DAY = 3600, 86400
NIGHT = "0 2 * * *"

HOURLY = known_checks.where("cadence", "hourly")
DAILY = known_checks.where("cadence", "daily")
NIGHTLY = known_checks.where("cadence", "nightly")


@dataclass(frozen=True, slots=True)
class Missing:
    """A check of the defaults that does not run on a deployment, and a sentence that says why."""

    check: str
    why: str


def missing_for(deployment: Deployment) -> list[Missing]:
    """Default checks that cannot run here yet, with what is missing. Two queries."""
    keys = Tenant.objects.current().filter(deployment=deployment).exclude(credential_sealed="").count()
    consent = Consent.objects.current().filter(deployment=deployment).exists()
    missing = []
    for check in (*HOURLY, *DAILY, *NIGHTLY):
        wanted = known_checks.keys_needed(check)
        if keys < wanted:
            missing.append(Missing(check, f"It needs the keys of {wanted} tenants; {keys} are stored."))
        elif check in NIGHTLY and not consent:
            missing.append(
                Missing(
                    check,
                    "Prompts that reach the limit can wedge a server: left out, on a pool of any size, until "
                    "consent is given (in the deployment’s Settings).",
                )
            )
    return missing


@transaction.atomic
def ensure_default_plans(*, deployment: Deployment, actor: Actor) -> list[Plan]:
    """Plan the default checks that can run now and were never planned here; returns the new plans.

    A check that any plan of this deployment ever named is left to whoever changed, switched off or
    retired that plan. Call again after keys or consent were recorded.
    """
    Deployment.objects.select_for_update(no_key=True).get(pk=deployment.pk)
    left_out = {missing.check for missing in missing_for(deployment)}
    for plan in Plan.objects.filter(deployments=deployment):
        left_out.update(plan.checks)
    wanted = [
        *_by_kind(deployment, "hourly", HOURLY, left_out, interval=HOUR),
        *_by_kind(deployment, "daily", DAILY, left_out, interval=DAY),
        *_by_kind(deployment, "nightly", NIGHTLY, left_out, cron=NIGHT, jitter=HOUR // 2),
    ]
    return [create_plan(spec=spec, actor=actor) for spec in wanted]


@transaction.atomic
def add_file_plans(*, deployment: Deployment, plans: Iterable[FleetPlan], actor: Actor) -> list[Plan]:
    """Create the plans that a fleet file gives a deployment; one whose name was ever made for it is
    left as it is. Raises PlanProblem."""
    Deployment.objects.select_for_update(no_key=True).get(pk=deployment.pk)
    specs = [
        PlanSpec(
            name=f"{deployment.slug} {plan.name}",
            checks=plan.checks,
            deployments=[deployment],
            cron=plan.cron,
            zone=plan.zone,
            interval=plan.interval,
            jitter=plan.jitter,
            windows=[window.as_json() for window in plan.windows],
            budget_seconds=plan.budget_seconds,
            budget_tokens=plan.budget_tokens,
        )
        for plan in plans
    ]
    made = set(Plan.objects.filter(deployments=deployment).values_list("name", flat=True))
    return [create_plan(spec=spec, actor=actor) for spec in specs if spec.name not in made]


def _by_kind(
    deployment: Deployment,
    pace: str,
    checks: Sequence[str],
    left_out: set[str],
    *,
    interval: int | None = None,
    cron: str = "",
    jitter: int = 0,
) -> list[PlanSpec]:
    """One plan for the passive checks and one for the active ones of this pace, where there are any."""
    able = [check for check in checks if check not in left_out]
    passive = [check for check in able if check in known_checks.PASSIVE]
    active = [check for check in able if check not in known_checks.PASSIVE]
    return [
        PlanSpec(
            name=f"{deployment.slug} {pace}{suffix}",
            checks=group,
            deployments=[deployment],
            interval=interval,
            cron=cron,
            jitter=jitter,
        )
        for group, suffix in (
            (passive, ""),
            (active, " with prompts" if passive or pace != "nightly" else ""),
        )
        if group
    ]
