"""A deployment out of the database as the `Target` that a run audits; the only place that opens keys."""

from __future__ import annotations

from kvaudit.advisories.pins import parse_pin
from kvaudit.checks.contract import Rules
from kvaudit.fleet.credentials import open_headers
from kvaudit.fleet.models import Consent, Deployment, Node, NodeSnapshot, Pause, Pin, Tenant
from kvaudit.readings import Fingerprint
from kvaudit.targets import Credentials, Target
from kvaudit.targets import Node as TargetNode
from kvaudit.targets import Tenant as TargetTenant


def load_target(deployment: Deployment) -> Target:
    """Everything a run needs, keys opened; five queries. Raises `SealBroken` when a stored key
    cannot be opened. Tenants without a key are left out: nothing can be asked in their name."""
    nodes = Node.objects.current().filter(deployment=deployment)
    tenants = Tenant.objects.current().filter(deployment=deployment).exclude(credential_sealed="")
    return Target(
        slug=deployment.slug,
        nodes=tuple(_node(node, deployment) for node in nodes),
        entry=deployment.entry,
        model=deployment.model,
        tenants=tuple(
            TargetTenant(tenant.name, Credentials(headers=open_headers(tenant.credential_sealed)))
            for tenant in tenants
        ),
        rules=rules_of(deployment),
        complete=True,
        consent=Consent.objects.current().filter(deployment=deployment).exists(),
    )


def rules_of(deployment: Deployment) -> Rules:
    """Policy for this deployment: its declared limits, and pins, where a deployment's pin replaces
    the fleet's of the same engine and that replaces the shipped one."""
    default = Rules()
    return Rules(
        headroom=deployment.headroom,
        pins=_pins(deployment, default.pins),
        context=deployment.context,
        edge_limit=deployment.edge_limit,
        conditions=dict(deployment.conditions),
        disagg_buffer=deployment.disagg_buffer,
    )


def reference_fingerprints(deployment: Deployment) -> dict[str, Fingerprint]:
    """Node name -> the fingerprint that the next reading is compared with; one query."""
    snapshots = NodeSnapshot.objects.filter(
        current=True, node__deployment=deployment, node__valid_to=None
    ).select_related("node")
    return {each.node.name: each.reference_fingerprint for each in snapshots}


def probes_paused(deployment: Deployment) -> bool:
    """Whether active probes of this deployment, or of the fleet, are paused now."""
    return Pause.objects.current().applying_to(deployment).exists()


def _node(node: Node, deployment: Deployment) -> TargetNode:
    engine = node.engine if node.engine not in ("", "auto") else deployment.engine
    return TargetNode(
        name=node.name,
        url=node.url,
        role=node.role,
        engine=engine or "auto",
        credentials=Credentials(
            headers=open_headers(node.headers_sealed),
            ca_file=node.ca_file,
            client_cert=node.client_cert,
            client_key=node.client_key,
        ),
        pointers=tuple(sorted(node.pointers.items())),
    )


def _pins(deployment: Deployment, shipped: tuple[str, ...]) -> tuple[str, ...]:
    by_engine = {parse_pin(text).engine: text for text in shipped}
    rows = sorted(
        Pin.objects.current().applying_to(deployment), key=lambda pin: pin.deployment_id is not None
    )
    by_engine.update({pin.engine: str(pin) for pin in rows})
    return tuple(by_engine[engine] for engine in sorted(by_engine))
