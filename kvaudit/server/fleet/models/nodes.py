"""What a deployment consists of: nodes and tenants, each an interval."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Prefetch, Q

from kvaudit.server.accounts.sealed_fields import SealedField
from kvaudit.server.fleet.intervals import Interval, IntervalQuerySet, not_backwards
from kvaudit.server.fleet.models.deployments import Deployment, DeploymentQuerySet, OfDeployment
from kvaudit.server.fleet.models.snapshots import NodeSnapshot


class NodeQuerySet(OfDeployment["Node"], IntervalQuerySet["Node"]):  # type: ignore[override] # both have as_manager
    def with_snapshot(self) -> Self:
        """The current reading of each as ``current_snapshots`` (a list of none or one)."""
        return self.prefetch_related(
            Prefetch("snapshots", NodeSnapshot.objects.filter(current=True), to_attr="current_snapshots")
        )


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
    # processes that answer at this address in turn; 0 where nobody said
    replicas = models.PositiveSmallIntegerField(default=0)

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


class TenantQuerySet(OfDeployment["Tenant"], IntervalQuerySet["Tenant"]):  # type: ignore[override]
    pass


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


def with_nodes(deployments: DeploymentQuerySet) -> DeploymentQuerySet:
    """Team joined; current nodes as ``current_nodes``, current tenants as ``current_tenants``."""
    return deployments.select_related("team").prefetch_related(
        Prefetch("nodes", Node.objects.current(), to_attr="current_nodes"),
        Prefetch("tenants", Tenant.objects.current(), to_attr="current_tenants"),
    )
