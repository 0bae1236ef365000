"""The command that asks the same question again, without kvaudit's database and by hand."""

from __future__ import annotations

import shlex

from kvaudit import checks
from kvaudit.audits.models import Run
from kvaudit.fleet.models import Node

MOST_NODES = 50


def command(run: Run) -> str:
    """``kvaudit gate ...`` or ``kvaudit probe ...`` with the nodes as they were listed then; "" when
    nothing can be asked again. Keys are named by variables, never written out."""
    nodes = list(
        Node.objects.at(run.started_at or run.created_at).filter(deployment=run.deployment_id)[:MOST_NODES]
    )
    # Drift compares with what only the database remembers.
    known = [name for name in run.checks if name in checks.MODULES and name != "drift"]
    if not nodes or not known:
        return ""
    deployment = run.deployment
    words = ["kvaudit", *_verb(known)]
    for node in nodes:
        words += ["--node", f"{node.role}={node.url}" if node.role else node.url]
    if deployment.engine not in ("", "auto"):
        words += ["--engine", deployment.engine]
    if deployment.context:
        words += ["--context", str(deployment.context)]
    words += ["--headroom", f"{deployment.headroom:g}"]
    if any(name in checks.ACTIVE for name in known):
        if deployment.entry:
            words += ["--entry", deployment.entry]
        words += ["--tenant-a-key-env", "TENANT_A_KEY", "--tenant-b-key-env", "TENANT_B_KEY"]
    return shlex.join(words)


def _verb(known: list[str]) -> list[str]:
    """The gate asks pool and version by itself; the rest is probed by name."""
    if {"pool", "version"} <= set(known) and not set(known) & set(checks.ACTIVE):
        return ["gate", *(["--also", "exposure"] if "exposure" in known else [])]
    return ["probe", *known]
