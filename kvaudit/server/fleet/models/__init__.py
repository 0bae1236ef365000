"""The fleet: deployments, what they consist of, what was read from them, what people decided about them."""

from __future__ import annotations

from kvaudit.server.fleet.models.deployments import Deployment, DeploymentQuerySet, OfDeployment
from kvaudit.server.fleet.models.nodes import Node, Tenant, with_nodes
from kvaudit.server.fleet.models.policy import SUSPENDER, Consent, Pause, Pin, SessionApproval
from kvaudit.server.fleet.models.snapshots import FingerprintChange, NodeSnapshot

__all__ = (
    "SUSPENDER",
    "Consent",
    "Deployment",
    "DeploymentQuerySet",
    "FingerprintChange",
    "Node",
    "NodeSnapshot",
    "OfDeployment",
    "Pause",
    "Pin",
    "SessionApproval",
    "Tenant",
    "with_nodes",
)
