"""Keeps the markers that runs planted, live for 30 days: what an earlier run planted may surface in an answer
of today.

Kept while a run is under way, so that a worker that dies leaves them behind; read before the next run.
Only our own drawn words are here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from kvaudit.auditor.text.markers import Marker, as_measure, live
from kvaudit.server import clock
from kvaudit.server.audits.models import Planting, Run

DAYS = 30
MOST = 20_000
"""Markers that one run looks for besides its own, the newest first: twice the number for which a run of
four words by chance was shown to be rare (methods.md 2.a)."""

MEASURE = "live_markers"
"""Where checks put what they planted and their decoys; it is kept here and nowhere else."""


def earlier(run: Run) -> tuple[Marker, ...]:
    """Markers and decoys of the deployment's last 30 days, newest first, each words once.

    Not those of runs with this run's seed (a replay, a second attempt): a stream of draws that is off by one
    word gives markers that share five words with the earlier ones, and an honest answer would be a hit.
    """
    since = clock.now() - timedelta(days=DAYS)
    rows = Planting.objects.filter(deployment_id=run.deployment_id, sent_at__gte=since).order_by("-sent_at")
    if run.seed is not None:
        rows = rows.exclude(run__seed=run.seed)
    found: dict[tuple[str, ...], Marker] = {}
    for markers in rows.values_list("markers", flat=True).iterator(chunk_size=50):
        for marker in live(markers):
            found.setdefault(marker.words, marker)
        if len(found) >= MOST:
            break
    return tuple(found.values())[:MOST]


def keep(run: Run, markers: Sequence[Marker]) -> None:
    """Store all that this attempt has planted so far; written again as it grows."""
    Planting.objects.update_or_create(
        run_id=run.pk,
        attempt=run.attempt,
        defaults={
            "deployment_id": run.deployment_id,
            "sent_at": clock.now(),
            "markers": [as_measure(marker) for marker in markers],
        },
    )


def in_measures(measures: dict[str, Any]) -> tuple[dict[str, Any], tuple[Marker, ...]]:
    """(measures without the markers, the markers): results are read by many, and a word that is known
    beforehand proves nothing when it surfaces."""
    if MEASURE not in measures:
        return measures, ()
    rest = {name: value for name, value in measures.items() if name != MEASURE}
    markers = live(measures[MEASURE])
    return {**rest, f"{MEASURE}_kept": len(markers)}, markers


def unknown(markers: Iterable[Marker], known: Iterable[Marker]) -> list[Marker]:
    """Those of ``markers`` whose words are not among ``known``."""
    there = {marker.words for marker in known}
    return [marker for marker in markers if marker.words not in there]


def prune() -> int:
    """Remove what is older than 30 days; returns how many rows."""
    old = Planting.objects.filter(sent_at__lt=clock.now() - timedelta(days=DAYS))
    return old.delete()[0]
