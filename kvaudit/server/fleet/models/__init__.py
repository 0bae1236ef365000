"""Deployments, nodes, tenants, pins, consent and pauses. Readings are in `kvaudit.server.fleet.models.snapshots`."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.models import Team
from kvaudit.server.accounts.sealed_fields import SealedField
from kvaudit.server.fleet.intervals import Interval, not_backwards
from kvaudit.server.fleet.models.snapshots import FingerprintChange, NodeSnapshot
from kvaudit.server.fleet.querysets import (
    ConsentQuerySet,
    DeploymentQuerySet,
    NodeQuerySet,
    PauseQuerySet,
    PinQuerySet,
    SessionApprovalQuerySet,
    TenantQuerySet,
)

__all__ = (
    "Consent",
    "Deployment",
    "FingerprintChange",
    "Node",
    "NodeSnapshot",
    "Pause",
    "Pin",
    "SessionApproval",
    "Tenant",
)


SUSPENDER = "kvaudit itself"
"""Who paused the probes of a deployment whose server stopped answering."""


class Deployment(models.Model):
    """A model as it is offered to tenants: the nodes that serve it and the limits declared for it.

    ``context``, ``edge_limit`` and ``disagg_buffer`` (what one prefill-to-decode transfer holds) are
    tokens, null where not declared. ``windows`` is the list of
    the fleet file; ``conditions`` maps advisory conditions to what the operator declared, and
    ``components`` connectors and stores to their versions. ``entry_sets_salts``: the entry overwrites
    the cache salts that clients send. ``session`` describes a session API (`fleet.session_plans`), {} for
    none; ``session_author`` is the person who brought it in last and ``session_set_by`` their name, or the
    command's. It is asked only under a `SessionApproval` of exactly this content.
    """

    slug = models.SlugField(max_length=100, unique=True)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="deployments")
    owner = models.CharField(max_length=300, blank=True)
    contact = models.CharField(max_length=300, blank=True)
    engine = models.CharField(max_length=40, default="auto")
    entry = models.CharField(max_length=500, blank=True)  # the URL that tenants use
    entry_sets_salts = models.BooleanField(default=False)
    model = models.CharField(max_length=300, blank=True)
    context = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    edge_limit = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    disagg_buffer = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    headroom = models.FloatField(default=1.25, validators=[MinValueValidator(1.0)])
    conditions = models.JSONField(default=dict, blank=True)
    components = models.JSONField(default=dict, blank=True)
    windows = models.JSONField(default=list, blank=True)
    session = models.JSONField(default=dict, blank=True)
    session_author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True, blank=True
    )
    session_set_by = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=clock.now)
    retired_at = models.DateTimeField(null=True, blank=True)

    objects = DeploymentQuerySet.as_manager()

    class Meta:
        ordering = ("slug",)
        constraints = (
            models.CheckConstraint(condition=Q(headroom__gte=1.0), name="fleet_deployment_headroom"),
        )

    def __str__(self) -> str:
        return self.slug


class Node(Interval):
    """One process to audit, as it was described from ``valid_from`` to ``valid_to``.

    Never edited: another URL, role, engine or key is another row with the same name.
    ``headers_sealed`` is encrypted, leaves the database only inside a `Target`, and is gone from a closed
    row; ``headers_env`` names the variables it was read from, where a file named them on the command line.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=300)
    role = models.CharField(max_length=20, blank=True)  # prefill, decode, unified or ""
    engine = models.CharField(max_length=40, default="auto")
    url = models.CharField(max_length=500)
    headers_sealed = SealedField(blank=True, editable=False, row=("deployment_id", "name"))
    headers_env = models.JSONField(default=list, blank=True)  # [header or "" for a bearer key, variable]
    ca_file = models.CharField(max_length=300, blank=True)
    client_cert = models.CharField(max_length=300, blank=True)
    client_key = models.CharField(max_length=300, blank=True)  # a file's name, not the key
    pointers = models.JSONField(default=dict, blank=True)  # generic engine: name -> JSON pointer

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ("name", "valid_from")
        constraints = (
            models.UniqueConstraint(
                fields=("deployment", "name"), condition=Q(valid_to=None), name="fleet_node_one_open"
            ),
            not_backwards("fleet_node_interval"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def has_tls_files(self) -> bool:
        return bool(self.ca_file or self.client_cert or self.client_key)

    @property
    def has_headers(self) -> bool:
        """Whether headers are stored; what they are is never shown."""
        return bool(self.headers_sealed)


class Tenant(Interval):
    """A customer of the deployment on whose behalf active checks ask. Its key is write-only, and so is
    the cache salt that it sends. ``key_env`` names the variable that the key was read from, where a file
    named it on the command line."""

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="tenants")
    name = models.CharField(max_length=300)
    credential_sealed = SealedField(blank=True, editable=False, row=("deployment_id", "name"))
    salt_sealed = SealedField(blank=True, editable=False, row=("deployment_id", "name"))
    credential_set_at = models.DateTimeField(null=True, blank=True)
    credential_set_by = models.CharField(max_length=300, blank=True)
    key_env = models.CharField(max_length=128, blank=True)

    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ("name", "valid_from")
        constraints = (
            models.UniqueConstraint(
                fields=("deployment", "name"), condition=Q(valid_to=None), name="fleet_tenant_one_open"
            ),
            not_backwards("fleet_tenant_interval"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def has_credential(self) -> bool:
        return bool(self.credential_sealed)


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


class Pause(Interval):
    """Active probes are paused, for one deployment or (without one) for the whole fleet."""

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
