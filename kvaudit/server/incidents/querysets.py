"""Reads of incidents, and which rows a user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Exists, F, OuterRef, Q

from kvaudit.server.fleet.intervals import IntervalQuerySet
from kvaudit.server.fleet.querysets import OfDeployment

if TYPE_CHECKING:
    from kvaudit.server.audits.models import Run
    from kvaudit.server.fleet.models import Deployment
    from kvaudit.server.incidents.models import ActionItem, Citation, Incident, Quarantine  # noqa: F401


class IncidentQuerySet(OfDeployment["Incident"]):
    def lasting(self) -> Self:
        """Not closed yet."""
        return self.exclude(state="closed")

    def of_run(self, run: Run) -> Self:
        """Those that have to do with a run, oldest first: ``cites`` results of it, ``replayed`` in it, or
        ``released`` on it (annotated)."""
        from kvaudit.server.incidents.models import Citation, Release, Replay

        mine = OuterRef("pk")
        return (
            self.filter(deployment=run.deployment_id)
            .annotate(
                cites=Exists(Citation.objects.filter(incident=mine, result__run=run)),
                replayed=Exists(Replay.objects.filter(incident=mine, run=run)),
                released=Exists(Release.objects.filter(incident=mine, runs=run)),
            )
            .filter(Q(cites=True) | Q(replayed=True) | Q(released=True))
            .order_by("id")
        )

    def listed(self) -> Self:
        """What a list row needs, without a query per row; ``quarantined`` and ``overridden`` annotated."""
        from kvaudit.server.incidents.models import Quarantine, Release

        return self.select_related("deployment__team").annotate(
            quarantined=Exists(Quarantine.objects.current().filter(deployment=OuterRef("deployment"))),
            overridden=Exists(Release.objects.filter(incident=OuterRef("pk"), override__isnull=False)),
        )


class CitationQuerySet(models.QuerySet["Citation"]):
    def with_results(self) -> Self:
        return self.select_related("result__run")


class ActionItemQuerySet(OfDeployment["ActionItem"]):
    deployment_is = "incident__deployment"

    def to_do(self) -> Self:
        """Open or open again; what is due first comes first, what has no date last."""
        return self.filter(state__in=("open", "reopened")).order_by(F("due").asc(nulls_last=True), "pk")


class QuarantineQuerySet(IntervalQuerySet["Quarantine"]):
    def of(self, deployment: Deployment) -> Self:
        """The one that holds now, if any."""
        return self.current().filter(deployment=deployment)
