"""The exposure statement of a deployment, out of its states, failed pool results and changes of capacity. Three
queries."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.db.models import Case, F, Func, OuterRef, Q, Subquery, TextField, Value, When
from django.db.models.functions import Coalesce, NullIf
from django.utils import timezone

from kvaudit.audits.models import CheckState, Result, Run
from kvaudit.fleet.models import Deployment, FingerprintChange
from kvaudit.inquiries.spans import Held, Statement
from kvaudit.inquiries.statement import BOUNDING, CHECKS, state
from kvaudit.inquiries.zones import joined
from kvaudit.readings import whole_number
from kvaudit.verdict import Verdict

_FIELDS = (
    "check_id", "verdict", "severity", "since", "last_confirmed", "expires_at", "closed_at", "expired_by",
    "run_id",
)  # fmt: skip


def statement_of(deployment: Deployment, since: datetime, until: datetime) -> Statement:
    """What is known of [since, until); the future is not known, so ``until`` is at most now."""
    now = timezone.now()
    until = min(until, now)
    # Results lie scattered over all of history: looked up for the few intervals of which a measure is told.
    failed = Q(verdict=Verdict.FAIL)
    bounding = Q(verdict=Verdict.PASS, check_id__in=BOUNDING) & (Q(closed_at=None) | Q(closed_at__gt=since))
    run = Run.objects.filter(pk=OuterRef("run_id"))
    rows = (
        CheckState.objects.filter(deployment=deployment, node=None, check_id__in=CHECKS, since__lt=now)
        .order_by("since", "id")
        .annotate(
            low=_measure(failed, "danger_zone", "0"),
            high=_measure(failed, "danger_zone", "1"),
            bound=_measure(bounding, "bound"),
            # A result kept while its run went on may be older than the run's digest.
            print=Coalesce(NullIf("fingerprint", Value("")), Subquery(run.values("fingerprint"))),
        )
    )
    changes = (
        FingerprintChange.objects.significant()
        .filter(deployment=deployment, at__lt=now)
        .order_by("at")
        .values_list("at", flat=True)
    )
    found = list(rows.values_list("result_id", *_FIELDS, "print", "low", "high", "bound"))
    held = [_held(row[1:]) for row in found]
    return state(_widened(deployment, held, [row[0] for row in found], since), since, until, changes)


def known_lengths(deployment: Deployment, since: datetime) -> list[tuple[int, int]]:
    """[low, high) tokens of every danger zone that was open at any time since then."""
    zones = statement_of(deployment, since, timezone.now()).zones
    return joined(span.zone for span in zones if span.zone is not None)


def _widened(
    deployment: Deployment, held: Sequence[Held], results: Sequence[int], since: datetime
) -> list[Held]:
    """Pools are drawn anew at every start, by a little, so that one fail that goes on has had several zones. Its
    interval points at the last result (``results``, an id for each); what it endangered is the lengths of all.

    Only fails that last into the window are asked for, by the ids between two intervals' last results: these are
    in the index, moments are not.
    """
    pool = [number for number, each in enumerate(held) if each.check == "pool"]
    decided = [number for number in pool if held[number].verdict in (Verdict.PASS, Verdict.FAIL)]
    gone = {n for n, later in pairwise(decided) if held[later].since <= since}
    fails = [n for n in decided if n not in gone and held[n].verdict is Verdict.FAIL]
    if not fails:
        return list(held)
    before = max((results[n] for n in pool if n < fails[0]), default=0)
    seen = (
        Result.objects.filter(deployment=deployment, check_id="pool", pk__gt=before, verdict=Verdict.FAIL)
        .filter(pk__lte=max(results[n] for n in fails))
        .order_by("observed_at")
        .values_list("observed_at", _text("danger_zone", "0"), _text("danger_zone", "1"))
    )
    zones = [(at, zone) for at, low, high in seen if (zone := _zone(low, high)) is not None]
    times = [at for at, _ in zones]
    wide = list(held)
    for n in fails:
        each = held[n]
        part = zones[bisect_left(times, each.since) : bisect_right(times, each.last_confirmed)]
        all_of_it = [zone for zone in (each.zone, *(zone for _, zone in part)) if zone is not None]
        if all_of_it:
            zone = min(low for low, _ in all_of_it), max(high for _, high in all_of_it)
            wide[n] = replace(each, zone=zone)
    return wide


def _text(*path: str) -> Func:
    """A measure of a result as text. (`KT` takes the first part of its path for the column.)"""
    return Func(
        F("measures"), *map(Value, path), function="jsonb_extract_path_text", output_field=TextField()
    )


def _measure(told: Q, *path: str) -> Case:
    """A measure of the interval's last result, as text; NULL where it is not ``told``."""
    result = Result.objects.filter(pk=OuterRef("result_id")).annotate(told=_text(*path))
    return Case(When(told, then=Subquery(result.values("told"))), default=None, output_field=TextField())


def _held(row: tuple[Any, ...]) -> Held:
    (
        check,
        verdict,
        severity,
        since,
        confirmed,
        expires,
        closed,
        expired_by,
        run,
        fingerprint,
        low,
        high,
        bound,
    ) = row
    return Held(
        check,
        Verdict.parse(verdict),
        severity,
        since,
        confirmed,
        expires,
        closed,
        expired_by,
        fingerprint,
        run,
        _zone(low, high),
        _share(bound),
    )


def _zone(low: Any, high: Any) -> tuple[int, int] | None:
    """Measures are JSON of any release: what is no zone is none."""
    try:
        start, end = whole_number(int(low)), whole_number(int(high))
    except (TypeError, ValueError):
        return None
    return (start, end) if start is not None and end is not None and 0 <= start < end else None


def _share(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found < 1 else None
