"""The exposure statement of a deployment, out of its states and its changes of capacity. Two queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Case, F, Func, OuterRef, Q, Subquery, TextField, Value, When
from django.db.models.functions import Coalesce, NullIf
from django.utils import timezone

from kvaudit.audits.models import CheckState, Result, Run
from kvaudit.fleet.models import Deployment, FingerprintChange
from kvaudit.inquiries.spans import Held, Statement
from kvaudit.inquiries.statement import BOUNDING, CHECKS, state
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
    held = [_held(row) for row in rows.values_list(*_FIELDS, "print", "low", "high", "bound")]
    return state(held, since, until, changes)


def _measure(told: Q, *path: str) -> Case:
    """A measure of the interval's last result, as text; NULL where it is not ``told``. (`KT` takes the first part
    of its path for the column.)"""
    measure = Func(
        F("measures"), *map(Value, path), function="jsonb_extract_path_text", output_field=TextField()
    )
    result = Result.objects.filter(pk=OuterRef("result_id")).annotate(told=measure)
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
