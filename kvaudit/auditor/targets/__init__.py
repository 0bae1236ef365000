"""Target: a deployment with its nodes, tenants and limits, loaded from flags, YAML or the database."""

from __future__ import annotations

from kvaudit.auditor.fleetfile import FleetFile, Problem, parse_fleet, parse_fleet_csv
from kvaudit.auditor.targets.model import Credentials, Node, Target, Tenant, tenants_origins
from kvaudit.auditor.targets.sources import TargetError, from_deployment, from_file, from_flags

__all__ = (
    "Credentials",
    "FleetFile",
    "Node",
    "Problem",
    "Target",
    "TargetError",
    "Tenant",
    "from_deployment",
    "from_file",
    "from_flags",
    "parse_fleet",
    "parse_fleet_csv",
    "tenants_origins",
)
