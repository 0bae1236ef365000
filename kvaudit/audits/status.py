"""What is true of a deployment at a moment: check states, expiry and roll-up, evaluated when read.

A fixed number of queries for any number of deployments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from kvaudit import checks
from kvaudit.audits.models import CheckState, Overdue, Plan
from kvaudit.fleet.models import Deployment
from kvaudit.verdict import Verdict, roll_up

GATE = ("pool", "version", "rejection", "canary")
"""The gate set of checklist item 5 (checks.md 10)."""

ALWAYS_REQUIRED = ("pool", "version", "rejection", "canary", "coherence", "accounting", "drift")
"""What checklist items 1-5 rest on, where this build has the check; plans add to it."""

ONLY_PLANNED = frozenset({"exposure"})
"""A fail of these counts where a plan runs them; of any other check it counts whoever asked (checks.md, Verdicts:
any fail is a fail). Without that a leak that somebody found by hand would leave the deployment a pass."""


def required_checks(planned: Iterable[str] = ()) -> tuple[str, ...]:
    """Checks without which a deployment cannot be *pass*, in the order of `checks.MODULES`."""
    wanted = {*ALWAYS_REQUIRED, *planned}
    return tuple(check for check in checks.MODULES if check in wanted)


@dataclass(frozen=True, slots=True)
class CheckNow:
    """One check of one deployment at a moment.

    ``verdict`` is what counts: *inconclusive* when the check is missing or expired, whatever
    ``said`` (its last verdict, None when it never ran).
    """

    check: str
    verdict: Verdict
    said: Verdict | None = None
    warn: bool = False
    severity: str = ""
    summary: str = "never ran"
    since: datetime | None = None
    last_confirmed: datetime | None = None
    expires_at: datetime | None = None
    expired_by: str = ""  # "" while it holds; "age" or what expired it, for instance "capacity change"
    run_id: int | None = None
    result_id: int | None = None
    node_id: int | None = None
    required: bool = True

    @property
    def missing(self) -> bool:
        return self.said is None

    @property
    def expired(self) -> bool:
        return bool(self.expired_by)


@dataclass(frozen=True, slots=True)
class DeploymentStatus:
    """The roll-up of one deployment. ``checks`` holds required and other checks that ever ran, in
    the order of `checks.MODULES`."""

    deployment: Deployment
    moment: datetime
    verdict: Verdict
    warn: bool
    checks: Mapping[str, CheckNow]
    nodes: Sequence[CheckNow] = ()  # states that belong to a single node
    overdue_since: datetime | None = None
    unknown_checks: Sequence[str] = field(default=())  # states of checks that this build does not have

    @property
    def missing(self) -> list[str]:
        return [name for name, now in self.checks.items() if now.required and now.missing]

    @property
    def expired(self) -> list[str]:
        return [name for name, now in self.checks.items() if now.required and now.expired]

    @property
    def since(self) -> datetime | None:
        """Since when the checks that decide the verdict have said so; None when one never ran."""
        deciding = [now for now in (*self.checks.values(), *self.nodes) if now.verdict == self.verdict]
        moments = [now.since for now in deciding]
        if not moments or any(moment is None for moment in moments):
            return None
        known = [moment for moment in moments if moment is not None]
        return max(known) if self.verdict is Verdict.PASS else min(known)


_FIELDS = (
    "deployment_id", "node_id", "check_id", "verdict", "warn", "severity", "summary", "since", "last_confirmed",
    "expires_at", "expired_by", "run_id", "result_id",
)  # fmt: skip


def statuses(
    deployments: Iterable[Deployment], *, moment: datetime | None = None
) -> dict[int, DeploymentStatus]:
    """Deployment id -> status, now or at a past moment. Four queries, however many deployments.

    For a past moment the plans that held then decide what was required.
    """
    wanted = list(deployments)
    when = timezone.now() if moment is None else moment
    planned = planned_checks(wanted, moment=moment)
    by_deployment: dict[int, list[Any]] = {each.pk: [] for each in wanted}
    # Rows, not model instances: a fleet of a thousand has ten thousand of them, twice as fast to read.
    states = CheckState.objects.as_of(moment).filter(deployment__in=by_deployment)
    for state in states.values_list(*_FIELDS, named=True):
        by_deployment[state.deployment_id].append(state)
    late = _overdue(by_deployment, when)
    return {
        each.pk: _status(each, when, by_deployment[each.pk], planned[each.pk], late.get(each.pk))
        for each in wanted
    }


def status_of(deployment: Deployment, *, moment: datetime | None = None) -> DeploymentStatus:
    return statuses([deployment], moment=moment)[deployment.pk]


def planned_checks(
    deployments: Iterable[Deployment], *, moment: datetime | None = None
) -> dict[int, set[str]]:
    """Deployment id -> checks that some enabled plan runs on it. Two queries."""
    wanted = {each.pk: each for each in deployments}
    planned: dict[int, set[str]] = {pk: set() for pk in wanted}
    plans = Plan.objects.enabled() if moment is None else Plan.objects.at(moment).filter(enabled=True)
    checks_of: dict[int, list[str]] = {}
    for plan in plans:
        checks_of[plan.pk] = plan.checks
        if plan.team_id is not None or plan.engine:
            for pk, each in wanted.items():
                if plan.matches(each):
                    planned[pk].update(plan.checks)
    # Every deployment has plans of its own: who asks each plan about each deployment asks millions of times.
    named = Plan.deployments.through._default_manager.filter(plan__in=checks_of, deployment__in=wanted)
    for plan_id, deployment_id in named.values_list("plan_id", "deployment_id"):
        planned[deployment_id].update(checks_of[plan_id])
    return planned


def _overdue(deployments: Iterable[int], when: datetime) -> dict[int, datetime]:
    first: dict[int, datetime] = {}
    rows = Overdue.objects.at(when).filter(deployment__in=list(deployments))
    for deployment_id, since in rows.values_list("deployment_id", "since"):
        first[deployment_id] = min(since, first.get(deployment_id, since))
    return first


def _status(
    deployment: Deployment,
    when: datetime,
    states: Sequence[Any],  # rows of `_FIELDS`
    planned: set[str],
    overdue_since: datetime | None,
) -> DeploymentStatus:
    required = required_checks(planned)
    whole = {state.check_id: state for state in states if state.node_id is None}
    shown: dict[str, CheckNow] = {}
    for check in checks.MODULES:
        if check in whole:
            shown[check] = _now(whole[check], when, required=check in required)
        elif check in required:
            shown[check] = CheckNow(check, Verdict.INCONCLUSIVE)
    nodes = [_now(state, when, required=True) for state in states if state.node_id is not None]
    counted = [
        now
        for now in (*shown.values(), *nodes)
        if now.required or (now.said is Verdict.FAIL and now.check not in ONLY_PLANNED)
    ]
    return DeploymentStatus(
        deployment=deployment,
        moment=when,
        verdict=roll_up(now.verdict for now in counted),
        warn=any(now.warn for now in counted),
        checks=shown,
        nodes=nodes,
        overdue_since=overdue_since,
        unknown_checks=sorted(set(whole) - set(checks.MODULES)),
    )


def _now(state: Any, when: datetime, *, required: bool) -> CheckNow:
    expired = state.expires_at <= when
    said = Verdict.parse(state.verdict)
    return CheckNow(
        check=state.check_id,
        verdict=Verdict.INCONCLUSIVE if expired else said,
        said=said,
        warn=state.warn,
        severity=state.severity,
        summary=state.summary,
        since=state.since,
        last_confirmed=state.last_confirmed,
        expires_at=state.expires_at,
        expired_by=(state.expired_by or "age") if expired else "",
        run_id=state.run_id,
        result_id=state.result_id,
        node_id=state.node_id,
        required=required,
    )
