"""Reads numbers of earlier runs on the same fingerprint: what one run alone cannot show.

Pool use that only rises, first-token times that drift, and the bound that clean runs under load give
together. A significant change of the fingerprint starts all of them anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from kvaudit.auditor.checks.contract import History
from kvaudit.auditor.stats.bounds import upper_bound
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result
from kvaudit.server.fleet.models import Deployment

MOST = 200
"""Results that are looked at, the newest first."""


def with_measures(history: History, deployment: Deployment) -> History:
    """For active runs; two short walks along an index."""
    since = history.fingerprint_changed_at
    return replace(
        history,
        pool_use_after=_numbers(deployment, "rejection", "pool_use_after", since),
        prefill_residuals=_numbers(deployment, "prefill", "median_residual", since),
    )


def pooled(deployment: Deployment, measures: Mapping[str, Any], since: datetime | None) -> dict[str, Any]:
    """Measure ``pooled`` of a concurrency result: its counts and those of earlier runs together. The
    bound is of mix-ups that show themselves, by the least share of answers that named their marker."""
    runs = [dict(measures), *_measures(deployment, "concurrency", since)]
    runs = [run for run in runs if _number(run.get("valid_under_load"))]
    valid = sum(int(run["valid_under_load"]) for run in runs)
    hits = sum(int(_number(run.get("hits_under_load")) or 0) for run in runs)
    surfacing = min((_number(run.get("surfacing")) or 0.0 for run in runs), default=0.0)
    bound = min(1.0, upper_bound(hits, valid) / surfacing) if surfacing and valid else 1.0
    return {
        "runs": len(runs),
        "valid_under_load": valid,
        "hits_under_load": hits,
        "bound": round(bound, 6),
        "confidence": 0.95,
    }


def _numbers(deployment: Deployment, check: str, name: str, since: datetime | None) -> tuple[float, ...]:
    """Oldest first."""
    found = [_number(measure.get(name)) for measure in _measures(deployment, check, since)]
    return tuple(reversed([number for number in found if number is not None]))


def _measures(deployment: Deployment, check: str, since: datetime | None) -> Iterator[dict[str, Any]]:
    """Newest first, one per run: its last attempt that concluded something."""
    rows = Result.objects.filter(deployment=deployment, check_id=check).exclude(verdict=Verdict.ERROR.value)
    seen = set()
    for run_id, at, measures in rows.order_by("-id").values_list("run_id", "observed_at", "measures")[:MOST]:
        if since is not None and at < since:
            return
        if run_id not in seen:
            seen.add(run_id)
            yield measures if isinstance(measures, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
