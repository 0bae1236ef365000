"""Checks the CA files and client certificates that a node may name: bare names in its team's folder."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from kvaudit.auditor.fleetfile import FleetNode
from kvaudit.auditor.transport.tls import BARE_NAME
from kvaudit.server.fleet.models import Deployment


def tls_folder_of(deployment: Deployment) -> str:
    """The only folder that files of this deployment are taken from; "" when the operator has set none up. One for
    each team, so that no team can name another's certificate."""
    root = settings.KVAUDIT_TLS_FOLDER
    slug = deployment.team.slug
    return str(Path(root) / slug) if root and BARE_NAME.match(slug) else ""


def tls_problem(node: FleetNode) -> str:
    """The sentence when a described node names files that the server would not open; "" when it may. It says
    nothing about the files of this machine: only how a name must look."""
    for field in ("ca_file", "client_cert", "client_key"):
        name = getattr(node, field)
        if name and not settings.KVAUDIT_TLS_FOLDER:
            return (
                f"{field} of node {node.name} names a file, and this server has no folder for TLS files: whoever "
                "runs kvaudit sets KVAUDIT_TLS_FOLDER and puts the file into the team's folder below it."
            )
        if name and not BARE_NAME.match(name):
            return (
                f"{field} of node {node.name} must be the bare name of a file, such as internal-ca.pem, that whoever "
                "runs kvaudit has put into the team's folder below KVAUDIT_TLS_FOLDER; paths are not taken here."
            )
    return ""
