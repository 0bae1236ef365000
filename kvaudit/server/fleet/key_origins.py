"""Lists where the keys of a deployment are sent: the origins that whoever gives a key gives it for."""

from __future__ import annotations

from collections.abc import Iterable

from kvaudit.auditor.targets import tenants_origins
from kvaudit.auditor.transport import origin_of
from kvaudit.server.fleet.models import Deployment, Node


def origins_of_tenants(deployment: Deployment, nodes: Iterable[Node] | None = None) -> frozenset[str]:
    """Those that a key of its tenants is sent to now; "" among them stands for an address that is never
    connected to. ``nodes``: its current nodes, where the caller has them."""
    current = Node.objects.current().filter(deployment=deployment) if nodes is None else nodes
    urls = [node.url for node in current]
    return tenants_origins(deployment.entry, urls, deployment.session.get("url", ""))


def origins_of_node(node: Node) -> frozenset[str]:
    """That of its URL."""
    return frozenset({origin_of(node.url)})
