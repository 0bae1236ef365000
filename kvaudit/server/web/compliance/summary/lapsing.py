"""Evidence that runs out soon because nobody made a plan that brings it again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import CheckState
from kvaudit.server.audits.state.status import plans_of
from kvaudit.server.fleet.models import Deployment

LAPSING_WITHIN = timedelta(days=7)
MOST_ROWS = 2_000
MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class Lapsing:
    """Checks of a deployment whose last word expires soon and that no plan renews; when the first does."""

    deployment: str
    checks: list[str]
    expires_at: datetime
    owner: str


def lapsing(user: User, now: datetime) -> list[Lapsing]:
    """The first to run out first, of what a person started by hand and no plan will run before then."""
    seen = Deployment.objects.visible_to(user).active()
    states = list(
        CheckState.objects.current()
        .filter(deployment__in=seen, interval=0, expires_at__gt=now, expires_at__lte=now + LAPSING_WITHIN)
        .select_related("deployment")
        .only(
            "check_id",
            "expires_at",
            "deployment__slug",
            "deployment__owner",
            "deployment__team_id",
            "deployment__engine",
        )
        .order_by("expires_at", "check_id")[:MOST_ROWS]
    )
    planned = _planned({state.deployment for state in states})
    found: dict[int, Lapsing] = {}
    for state in states:
        due = planned[state.deployment_id].get(state.check_id)
        if due is not None and due < state.expires_at:
            continue
        slug, owner = state.deployment.slug, state.deployment.owner
        checks = found.setdefault(state.deployment_id, Lapsing(slug, [], state.expires_at, owner)).checks
        if state.check_id not in checks:
            checks.append(state.check_id)
    return list(found.values())[:MOST_LISTED]


def _planned(deployments: Collection[Deployment]) -> Mapping[int, Mapping[str, datetime]]:
    """Deployment id -> check -> when the next plan that is switched on runs it."""
    found: dict[int, dict[str, datetime]] = {}
    for pk, plans in plans_of(deployments).items():
        due = found[pk] = {}
        for plan in plans:
            if plan.next_due is not None:
                for check in plan.checks:
                    due[check] = min(plan.next_due, due.get(check, plan.next_due))
    return found
