"""The status of deployments (`audits.state.tiers`) with the incident that is being worked on, if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from kvaudit.server.audits.models import Planned
from kvaudit.server.audits.state.bulk_reads import among
from kvaudit.server.audits.state.deployment_status import DeploymentStatus
from kvaudit.server.audits.state.status import statuses
from kvaudit.server.audits.state.tiers import Assessment, assessment_of
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents.models import Incident


class Named(Planned, Protocol):
    """A deployment as far as plans and a status look at it."""

    @property
    def slug(self) -> str: ...


def at_work(deployments: Iterable[int]) -> dict[int, int]:
    """Deployment id -> its newest incident that is neither restored nor closed. One query."""
    rows = Incident.objects.filter(among("deployment_id", deployments), state__in=("open", "mitigated"))
    return dict(rows.order_by("id").values_list("deployment_id", "id"))


def assessed(slugs: Mapping[int, str], status_of: Mapping[int, DeploymentStatus]) -> dict[int, Assessment]:
    """Deployment id -> its status now, where the states are read already. One query."""
    incidents = at_work(slugs)
    return {pk: assessment_of(slug, status_of[pk], incidents.get(pk)) for pk, slug in slugs.items()}


def assessment(deployment: Deployment, status: DeploymentStatus) -> Assessment:
    return assessed({deployment.pk: deployment.slug}, {deployment.pk: status})[deployment.pk]


def assessments(deployments: Iterable[Named], *, moment: datetime | None = None) -> dict[int, Assessment]:
    """Deployment id -> its status, now or at a past moment. Five or six queries. Of a past moment no incident is named:
    nobody can work on how it stood then."""
    wanted = list(deployments)
    known = statuses(wanted, moment=moment)
    slugs = {each.pk: each.slug for each in wanted}
    if moment is None:
        return assessed(slugs, known)
    return {pk: assessment_of(slug, known[pk]) for pk, slug in slugs.items()}
