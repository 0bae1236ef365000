"""Rolls up what is true of a deployment at a moment: check states and expiry, evaluated when read.

A fixed number of queries for any number of deployments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.auditor.verdict import Verdict, roll_up
from kvaudit.server import clock
from kvaudit.server.audits.models import CheckState, Overdue, Plan, Planned
from kvaudit.server.audits.state.bulk_reads import among, micros
from kvaudit.server.audits.state.deployment_status import (
    ALWAYS_REQUIRED,
    STATE_COLUMNS,
    DeploymentStatus,
    StateRow,
    counts_unrequired,
    required_checks,
)


def statuses(
    deployments: Iterable[Planned], *, moment: datetime | None = None
) -> dict[int, DeploymentStatus]:
    """Deployment id -> status, now or at a past moment. Four queries, five where a check that is not always
    required came to nothing, however many deployments.

    For a past moment the plans that held then decide what was required.
    """
    wanted = list(deployments)
    when = clock.now() if moment is None else moment
    plans = plans_of(wanted, moment=moment)
    by_deployment: dict[int, list[StateRow]] = {deployment.pk: [] for deployment in wanted}
    # Rows, not model instances: a fleet of a thousand has ten thousand of them, twice as fast to read.
    states = CheckState.objects.as_of(moment).filter(among("deployment_id", by_deployment))
    doubtful: set[int] = set()
    for state in map(StateRow._make, states.values_list(*STATE_COLUMNS)):
        by_deployment[state.deployment_id].append(state)
        if state.verdict not in _CONCLUDED and state.check not in ALWAYS_REQUIRED:
            doubtful.add(state.deployment_id)
    unrefuted = _unrefuted(doubtful, moment)
    late = _overdue(by_deployment, when)
    found = {}
    required: dict[tuple[int, ...], tuple[str, ...]] = {}  # few plans make few different sets
    for pk, rows in by_deployment.items():
        chosen = tuple(plan.pk for plan in plans[pk])
        if chosen not in required:
            required[chosen] = required_checks(check for plan in plans[pk] for check in plan.checks)
        found[pk] = _status(
            when, rows, required[chosen], late.get(pk), plans[pk], unrefuted.get(pk, frozenset())
        )
    return found


def status_of(deployment: Planned, *, moment: datetime | None = None) -> DeploymentStatus:
    return statuses([deployment], moment=moment)[deployment.pk]


def plans_of(deployments: Iterable[Planned], *, moment: datetime | None = None) -> dict[int, list[Plan]]:
    """Deployment id -> enabled plans that select it, now or at a past moment. Two queries."""
    wanted = {deployment.pk: deployment for deployment in deployments}
    found: dict[int, list[Plan]] = {pk: [] for pk in wanted}
    if not wanted:
        return found
    plans = Plan.objects.enabled() if moment is None else Plan.objects.at(moment).filter(enabled=True)
    by_id = {plan.pk: plan for plan in plans}
    for plan in by_id.values():
        if plan.team_id is not None or plan.engine:
            for pk, deployment in wanted.items():
                if plan.matches(deployment):
                    found[pk].append(plan)
    # Every deployment has plans of its own: who asks each plan about each deployment asks millions of times.
    named = Plan.deployments.through._default_manager.filter(among("deployment_id", wanted), plan__in=by_id)
    for plan_id, deployment_id in named.order_by("plan_id").values_list("plan_id", "deployment_id"):
        if by_id[plan_id] not in found[deployment_id]:
            found[deployment_id].append(by_id[plan_id])
    return found


def _overdue(deployments: Iterable[int], when: datetime) -> dict[int, datetime]:
    first: dict[int, datetime] = {}
    rows = Overdue.objects.at(when).filter(among("deployment_id", deployments))
    for deployment_id, since in rows.values_list("deployment_id", "since"):
        first[deployment_id] = min(since, first.get(deployment_id, since))
    return first


def _unrefuted(deployments: Collection[int], moment: datetime | None) -> dict[int, set[str]]:
    """Deployment -> checks that failed and have learnt nothing since. Of those that are always required it makes
    no difference: they count anyway."""
    found: dict[int, set[str]] = {}
    if not deployments:
        return found
    rows = CheckState.objects.unrefuted(moment).filter(among("deployment_id", deployments))
    rows = rows.exclude(check_id__in=ALWAYS_REQUIRED).order_by()
    for deployment_id, check in rows.values_list("deployment_id", "check_id"):
        found.setdefault(deployment_id, set()).add(check)
    return found


_CONCLUDED = frozenset({Verdict.PASS.value, Verdict.FAIL.value})
_VERDICTS = {verdict.value: verdict for verdict in Verdict}


def _status(
    when: datetime,
    states: Sequence[StateRow],
    required: Sequence[str],
    overdue_since: datetime | None,
    plans: Sequence[Plan],
    unrefuted: Collection[str],
) -> DeploymentStatus:
    """In one pass over the rows, since a page rolls up thousands: what `checks` and `nodes` say one by one."""
    at = micros(when)
    seen: set[Verdict] = set()
    missing = set(required)
    warn = leaking = False
    for state in states:
        check = state.check
        whole = state.node_id is None
        if whole and check not in checks.MODULES:
            continue
        said = _VERDICTS.get(state.verdict, Verdict.ERROR)
        if whole:
            missing.discard(check)
            if check not in required and not counts_unrequired(check, state.verdict, unrefuted):
                continue
        expired = state.expires_at <= at
        seen.add(Verdict.INCONCLUSIVE if expired else said)
        if said is Verdict.FAIL and not expired and checks.meaning(check, state.severity) is Meaning.LEAK:
            leaking = True
        warn = warn or state.warn
    return DeploymentStatus(
        moment=when,
        verdict=roll_up(seen, missing=bool(missing)) if seen else Verdict.INCONCLUSIVE,
        warn=warn,
        required=required,
        states=states,
        overdue_since=overdue_since,
        plans=plans,
        unrefuted=unrefuted,
        leaking=leaking,
    )
