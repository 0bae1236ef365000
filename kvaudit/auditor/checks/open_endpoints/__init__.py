"""Who can read or do what without a key?

Asks each node the allow-listed paths of its engine without any credential, reads the list of routes
in ``/openapi.json``, and never calls a route that acts: that one is open is concluded from what is
listed and from which reads were refused.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="exposure",
    name="open endpoints",
    title="What is open without a key",
    why="Keys, admin routes or completions that need no key undo every separation between tenants.",
    kind="passive",
    order=4,
    package="open_endpoints",
    cadence="daily",
    planned_only=True,
)
