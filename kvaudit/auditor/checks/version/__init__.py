"""Is the build one that policy allows, and is it known to mix up requests?

Pins are policy: a build below its pin fails. Advisories are facts: a build in an affected range whose
conditions are met fails; one undecided condition makes the result inconclusive until it is read or
declared. Advisories without an established range are listed with a warning and decide nothing.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="version",
    title="Version pins and known bugs",
    why="Some releases are known to answer one request out of another's cache; which ones depends on engine, "
    "connectors and configuration.",
    kind="passive",
    order=2,
    required=True,
    gate=True,
    cadence="hourly",
    read_at_gate=True,
)
