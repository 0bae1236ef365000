"""Lists the runs that incidents rest on: their evidence is kept for good
(`kvaudit.server.audits.evidence.retention`)."""

from __future__ import annotations

from typing import Any

from kvaudit.server.incidents.models import Citation
from kvaudit.server.incidents.models.proof import Release, Replay


def cited_runs() -> Any:
    """Ids of runs that show an incident, that asked its cells again, or on which a deployment was released."""
    return (
        Citation.objects.order_by()
        .values_list("result__run")
        .union(
            Replay.objects.order_by().values_list("run"),
            Replay.objects.order_by().values_list("original"),
            Release.runs.through._default_manager.values_list("run"),
        )
    )
