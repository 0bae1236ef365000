"""What people decided about deployments: pins, consent, approvals of session APIs, pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from kvaudit.server.accounts.models import User
from kvaudit.server.fleet.intervals import Interval, IntervalQuerySet, not_backwards
from kvaudit.server.fleet.models.deployments import Deployment

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


SUSPENDER = "kvaudit itself"
"""Who paused the probes of a deployment whose server stopped answering."""


class PinQuerySet(IntervalQuerySet["Pin"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Pins of visible deployments, and the fleet-wide ones, which concern everybody."""
        return self.filter(Q(deployment=None) | Q(deployment__in=Deployment.objects.visible_to(user)))

    def applying_to(self, deployment: Deployment) -> Self:
        return self.filter(Q(deployment=None) | Q(deployment=deployment))


class Pin(Interval):
    """Policy: the versions of an engine that are allowed; without a deployment, fleet-wide."""

    deployment = models.ForeignKey(
        Deployment, on_delete=models.PROTECT, related_name="pins", null=True, blank=True
    )
    engine = models.CharField(max_length=100)
    specifier = models.CharField(max_length=100)  # PEP 440: >=0.5.22
    set_by = models.CharField(max_length=300)
    reason = models.CharField(max_length=500, blank=True)

    objects = PinQuerySet.as_manager()

    class Meta:
        ordering = ("engine", "valid_from")
        constraints = (
            models.UniqueConstraint(
                fields=("deployment", "engine"),
                condition=Q(valid_to=None),
                nulls_distinct=False,
                name="fleet_pin_one_open",
            ),
            not_backwards("fleet_pin_interval"),
        )

    def __str__(self) -> str:
        return f"{self.engine}{self.specifier}"


class ConsentQuerySet(IntervalQuerySet["Consent"]):
    pass


class Consent(Interval):
    """The operator's recorded consent to prompts of N-8 tokens and more while the pool is small."""

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="consents")
    given_by = models.CharField(max_length=300)
    reason = models.CharField(max_length=500, blank=True)

    objects = ConsentQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("deployment",), condition=Q(valid_to=None), name="fleet_consent_one_open"
            ),
            not_backwards("fleet_consent_interval"),
        )

    def __str__(self) -> str:
        return f"consent for {self.deployment}"


class SessionApprovalQuerySet(IntervalQuerySet["SessionApproval"]):
    pass


class SessionApproval(Interval):
    """A second person's word that this session API may be asked: the URL, steps and pool with this digest, on this
    deployment, and nothing else (`fleet.session_approval`)."""

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="session_approvals")
    digest = models.CharField(max_length=64)  # SHA-256 of what was approved
    approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.CharField(max_length=500, blank=True)

    objects = SessionApprovalQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("deployment",), condition=Q(valid_to=None), name="fleet_session_approval_one_open"
            ),
            not_backwards("fleet_session_approval_interval"),
        )

    def __str__(self) -> str:
        return f"approval of the session API of {self.deployment}"


class PauseQuerySet(IntervalQuerySet["Pause"]):
    def applying_to(self, deployment: Deployment) -> Self:
        """Pauses of this deployment and of the whole fleet."""
        return self.filter(Q(deployment=None) | Q(deployment=deployment))


class Pause(Interval):
    """Active checks are paused, for one deployment or (without one) for the whole fleet."""

    deployment = models.ForeignKey(
        Deployment, on_delete=models.PROTECT, related_name="pauses", null=True, blank=True
    )
    paused_by = models.CharField(max_length=300)
    reason = models.CharField(max_length=500, blank=True)

    objects = PauseQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("deployment",),
                condition=Q(valid_to=None),
                nulls_distinct=False,
                name="fleet_pause_one_open",
            ),
            not_backwards("fleet_pause_interval"),
        )

    def __str__(self) -> str:
        return f"pause of {self.deployment or 'the fleet'}"

    @property
    def suspended(self) -> bool:
        """Set by kvaudit itself, after a prompt that stopped the server from answering."""
        return self.paused_by == SUSPENDER
