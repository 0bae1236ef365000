"""Makes, changes (by a new version), switches off and retires plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from django.db import transaction

from kvaudit.auditor import checks as known_checks
from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits import options
from kvaudit.server.audits.models import Kind, Plan, Where
from kvaudit.server.audits.schedule import windows as hours
from kvaudit.server.audits.schedule.times import Schedule
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record


class PlanProblem(ValueError):
    """A plan that cannot be kept; the text is a sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """All that a plan says. ``interval`` and ``jitter`` are seconds, ``budget_tokens`` prompt tokens."""

    name: str
    checks: Sequence[str]
    deployments: Sequence[Deployment] = ()
    team: Team | None = None
    engine: str = ""
    cron: str = ""
    zone: str = "UTC"
    interval: int | None = None
    jitter: int = 0
    windows: Sequence[Any] = field(default_factory=list)
    budget_seconds: int | None = None
    budget_tokens: int | None = None
    where: str = Where.PRODUCTION.value
    enabled: bool = True

    def problem(self) -> str:
        """ "" or a sentence."""
        if not self.name.strip():
            return "A plan needs a name."
        if not self.checks:
            return "A plan needs at least one check."
        for check in self.checks:
            if check not in known_checks.MODULES:
                return known_checks.no_such(check)
        if len({kind_of(check) for check in self.checks}) > 1:
            return "Passive and active checks go into plans of their own: active ones wait for their window."
        if not self.deployments and self.team is None and not self.engine:
            return "A plan selects deployments, a team or an engine: give at least one."
        if self.where not in Where.values:
            return f"Where is one of {', '.join(Where.values)}."
        if self.where != Where.PRODUCTION and kind_of(self.checks[0]) is Kind.PASSIVE:
            return "What only reads is the same with and without traffic: newcomers and drained are for active checks."
        if self.jitter < 0:
            return "Jitter is a number of seconds, zero or more."
        return self.schedule().problem() or self._too_often() or hours.problem(self.windows)

    def _too_often(self) -> str:
        """ "" or that slots come faster than they are looked for: those in between would all be missed."""
        looked_for = options.beat_seconds()
        slots = list(islice(self.schedule(clock.now()).after(clock.now()), 10))
        shortest = (
            min((later - slot).total_seconds() for slot, later in pairwise(slots))
            if slots[1:]
            else looked_for
        )
        if shortest >= looked_for:
            return ""
        return (
            f"A plan that is due every {shortest:g} s cannot be kept: what is due is looked for every {looked_for:g} s "
            "(BEAT_SECONDS). Give at least that."
        )

    def schedule(self, anchor: datetime | None = None) -> Schedule:
        return Schedule(self.cron, self.zone, self.interval, anchor)


def kind_of(check: str) -> Kind:
    return Kind.PASSIVE if check in known_checks.PASSIVE else Kind.ACTIVE


def schedule_of(plan: Plan) -> Schedule:
    return Schedule(plan.cron, plan.zone, plan.interval, plan.anchor)


def period_of(plan: Plan, around: datetime) -> timedelta:
    """The longest gap between the plan's slots near ``around``."""
    return schedule_of(plan).period(around)


def spec_of(plan: Plan) -> PlanSpec:
    """What an edit form starts from."""
    return PlanSpec(
        name=plan.name,
        checks=list(plan.checks),
        deployments=list(plan.deployments.all()),
        team=plan.team,
        engine=plan.engine,
        cron=plan.cron,
        zone=plan.zone,
        interval=plan.interval,
        jitter=plan.jitter,
        windows=list(plan.windows),
        budget_seconds=plan.budget_seconds,
        budget_tokens=plan.budget_tokens,
        where=plan.where,
        enabled=plan.enabled,
    )


@transaction.atomic
def create_plan(*, spec: PlanSpec, actor: Actor) -> Plan:
    """A new plan; an interval is due at once, cron at its next slot. Raises PlanProblem."""
    _require(spec, actor)
    plan = _insert(spec, actor=actor)
    record(actor=actor, kind="plan.created", subject=f"plan:{plan.series}", digest=_digest(plan, spec))
    return plan


@transaction.atomic
def change_plan(*, plan: Plan, spec: PlanSpec, actor: Actor) -> Plan:
    """Close this version and open the next. An interval that did not change keeps its beat, so that
    renaming a plan neither repeats nor skips a slot. Raises PlanProblem."""
    _require(spec, actor)
    _require(spec_of(plan), actor)
    old = Plan.objects.select_for_update().get(pk=plan.pk)
    if old.valid_to is not None:
        raise PlanProblem(f"{old.name} was changed meanwhile: load its newest version and change that.")
    new = _insert(spec, actor=actor, previous=old)
    record(actor=actor, kind="plan.changed", subject=f"plan:{new.series}", digest=_digest(new, spec))
    return new


@transaction.atomic
def retire_plan(*, plan: Plan, actor: Actor) -> None:
    """No further slots. Runs that are queued still happen; what ran stays."""
    _require(spec_of(plan), actor)
    old = Plan.objects.select_for_update().get(pk=plan.pk)
    if old.valid_to is None:
        Plan.objects.filter(pk=old.pk).update(valid_to=clock.now(), next_due=None)
        record(actor=actor, kind="plan.retired", subject=f"plan:{old.series}")


def _require(spec: PlanSpec, actor: Actor) -> None:
    """Whoever plans must be allowed to for every team the plan reaches; by engine alone: fleet-wide."""
    teams = {deployment.team for deployment in spec.deployments} | ({spec.team} if spec.team else set())
    for team in sorted(teams, key=lambda each: each.pk):
        require(actor, "edit_plans", team)
    if spec.engine and spec.team is None:
        require(actor, "edit_plans")


def _insert(spec: PlanSpec, *, actor: Actor, previous: Plan | None = None) -> Plan:
    if problem := spec.problem():
        raise PlanProblem(problem)
    now = clock.now()
    series = {} if previous is None else {"series": previous.series}
    plan = Plan(
        name=spec.name.strip(),
        kind=kind_of(spec.checks[0]),
        checks=[check for check in known_checks.MODULES if check in spec.checks],
        team=spec.team,
        engine=spec.engine,
        cron=spec.cron,
        zone=spec.zone,
        interval=spec.interval,
        anchor=now.replace(microsecond=0),
        jitter=spec.jitter,
        windows=list(spec.windows),
        budget_seconds=spec.budget_seconds,
        budget_tokens=spec.budget_tokens,
        where=spec.where,
        enabled=spec.enabled,
        valid_from=now,
        created_by=actor if isinstance(actor, User) else None,
        **series,
    )
    keeps_beat = previous is not None and previous.interval is not None and previous.interval == plan.interval
    if previous is not None and keeps_beat:
        plan.anchor = previous.anchor
    if plan.enabled:
        plan.next_due = plan.anchor if plan.interval and not keeps_beat else schedule_of(plan).next_after(now)
        if previous is not None and keeps_beat and previous.next_due is not None:
            plan.next_due = previous.next_due
    if previous is not None:
        Plan.objects.filter(pk=previous.pk).update(valid_to=now, next_due=None)
    plan.save(force_insert=True)
    plan.deployments.set(spec.deployments)
    return plan


def _digest(plan: Plan, spec: PlanSpec) -> str:
    return digest_of(
        {
            "series": str(plan.series),
            "name": plan.name,
            "checks": plan.checks,
            "deployments": sorted(deployment.slug for deployment in spec.deployments),
            "team": spec.team.slug if spec.team else None,
            "engine": plan.engine,
            "cron": plan.cron,
            "zone": plan.zone,
            "interval": plan.interval,
            "jitter": plan.jitter,
            "windows": plan.windows,
            "budget": [plan.budget_seconds, plan.budget_tokens],
            "enabled": plan.enabled,
            **({"where": plan.where} if plan.where != Where.PRODUCTION else {}),
        }
    )
