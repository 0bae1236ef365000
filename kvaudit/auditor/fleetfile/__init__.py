"""Reads fleet files, schema ``kvaudit.fleet/1``: who serves what, where, for whom.

Secrets are never in such a file, only the names of environment variables that hold them; values of
key fields are never repeated in a problem, since somebody may have pasted the key itself. The
parsers are imported when a file is read: a gate on flags should not pay for them.
"""

from __future__ import annotations

from kvaudit.auditor.fleetfile.schema import (
    FleetDeployment,
    FleetFile,
    FleetNode,
    FleetPlan,
    FleetTenant,
    FleetWindow,
    Problem,
)

__all__ = (
    "FleetDeployment",
    "FleetFile",
    "FleetNode",
    "FleetPlan",
    "FleetTenant",
    "FleetWindow",
    "Problem",
    "parse_fleet",
    "parse_fleet_csv",
)


def parse_fleet(content: str | bytes) -> FleetFile:
    """The deployments of a YAML fleet file and its problems by line; never raises for its content."""
    from kvaudit.auditor.fleetfile.from_yaml import parse

    return parse(content)


def parse_fleet_csv(content: str | bytes) -> FleetFile:
    """The same out of CSV, one row per node; never raises for its content."""
    from kvaudit.auditor.fleetfile.from_csv import parse

    return parse(content)
