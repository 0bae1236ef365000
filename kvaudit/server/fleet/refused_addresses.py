"""Lists addresses of a fleet file that this server will not connect to, before the first audit fails on them."""

from __future__ import annotations

from kvaudit.auditor.fleetfile import FleetDeployment
from kvaudit.auditor.transport import TransportError, egress, parse_base_url


def closed_doors(described: FleetDeployment) -> list[str]:
    """One sentence for each address that the egress list closes. Only what is written as an address is judged
    here: a name is looked up when it is connected to."""
    places = [(f"node {node.name}", node.url) for node in described.nodes]
    places += [("the entry", described.entry)] if described.entry else []
    places += [("the session API", described.session.url)] if described.session else []
    said = []
    for whose, url in places:
        try:
            base = parse_base_url(url)
        except TransportError as problem:
            said.append(f"{described.slug}: {whose} cannot be reached. {problem}")
            continue
        if why := egress.current().refusal_now(base.host, base.port):
            said.append(f"{described.slug}: {whose} cannot be reached. {base.host}:{base.port} is {why}.")
    return said
