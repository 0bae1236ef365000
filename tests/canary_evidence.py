"""What canary runs add to the evidence of a build, as they store it, and what several come to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from kvaudit.auditor.stats.accumulated import accumulate
from kvaudit.auditor.stats.accumulated_said import as_measure
from kvaudit.auditor.stats.run_evidence import read

SURE = [{"mode": "ids", "tail": "phrase", "trials": 4_000, "surfaced": 4_000}]
"""So that effective trials are weights."""


def evidence(*, boundary: float = 0.0, other: float = 0.0, **said: Any) -> dict[str, Any]:
    """``measures["evidence"]`` of a run; ``boundary`` and ``other`` are effective trials."""
    strata = {"boundary": boundary, "log-uniform": other}
    return {
        "build": "b1",
        "build_said": "sglang 0.5.13, page 64",
        "where": "production",
        "void_share": 0.0,
        "trials": [
            {
                "stratum": name,
                "mode": "ids",
                "tail": "phrase",
                "replica": "a",
                "count": int(weight) + 1,
                "weight": weight,
            }
            for name, weight in strata.items()
        ],
        "surfacing": SURE,
        "hits": 0,
    } | said


def added_up(*runs: tuple[float, dict[str, Any]], now: datetime | None = None) -> dict[str, Any]:
    """``measures["accumulated"]`` after runs of so many days ago."""
    moment = now or timezone.now()
    found = [read(moment - timedelta(days=days), told) for days, told in runs]
    return as_measure(accumulate([run for run in found if run is not None], moment))


GREEN = (
    (9, evidence(boundary=21, where="newcomer")),
    (2, evidence(boundary=1, other=4)),
    (1, evidence(other=4)),
)
ON_ITS_WAY = ((1, evidence(boundary=6, other=7)),)
