"""Loads the exposure statement of a deployment, out of its states and changes of capacity. Two queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Case, OuterRef, Q, Subquery, TextField, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, NullIf

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.models import CheckState, Result, Run
from kvaudit.server.fleet.models import Deployment, FingerprintChange
from kvaudit.server.inquiries.exposure.statement import BOUNDING, CHECKS, state
from kvaudit.server.inquiries.exposure.timespans import StateInterval, Statement
from kvaudit.server.inquiries.request_logs.classification import joined

_FIELDS = (
    "check_id", "verdict", "severity", "since", "last_confirmed", "expires_at", "closed_at", "expired_by",
    "run_id",
)  # fmt: skip


def statement_of(deployment: Deployment, since: datetime, until: datetime) -> Statement:
    """What is known of [since, until); the future is not known, so ``until`` is at most now."""
    now = clock.now()
    until = min(until, now)
    # Results lie scattered over all of history: looked up for the few intervals of which a bound is told.
    bounding = Q(verdict=Verdict.PASS, check_id__in=BOUNDING) & (Q(closed_at=None) | Q(closed_at__gt=since))
    run = Run.objects.filter(pk=OuterRef("run_id"))
    rows = (
        CheckState.objects.filter(deployment=deployment, node=None, check_id__in=CHECKS, since__lt=now)
        .order_by("since", "id")
        .annotate(
            bound=_bound(bounding),
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
    held = rows.values_list(*_FIELDS, "print", "zone_low", "zone_high", "bound")
    return state(map(_held, held), since, until, changes)


def known_lengths(deployment: Deployment, since: datetime) -> list[tuple[int, int]]:
    """[low, high) tokens of every danger zone that was open at any time since then."""
    zones = statement_of(deployment, since, clock.now()).zones
    return joined(span.zone for span in zones if span.zone is not None)


def _bound(told: Q) -> Case:
    """The bound of the interval's last result, as text; NULL where it is not ``told``."""
    result = Result.objects.filter(pk=OuterRef("result_id")).values(told=KT("measures__bound"))
    return Case(When(told, then=Subquery(result)), default=None, output_field=TextField())


def _held(row: tuple[Any, ...]) -> StateInterval:
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
    return StateInterval(
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
        None if low is None else (low, high),
        _share(bound),
    )


def _share(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found < 1 else None
