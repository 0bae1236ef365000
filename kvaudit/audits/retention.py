"""Evidence that may go: bodies that runs kept long ago and that nothing rests on.

Only the stored bytes go. Verdicts, sentences, measures, digests and the ledger stay, so a copy that
somebody else holds can still be compared with its digest. What a *failing* run saw is kept for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, ForeignObjectRel, OuterRef, Q

from kvaudit import clock
from kvaudit.audits import options
from kvaudit.audits.models import CheckState, Evidence, Run, RunEvidence
from kvaudit.ledger.chain import digest_of
from kvaudit.ledger.services import record
from kvaudit.verdict import Verdict

ACTOR = "system:retention"
RUNS_AT_ONCE = 200
LONGEST = 60.0
"""Seconds of one pass: a backlog is worked off over several."""

_citing: list[Callable[[], Any]] = []


@dataclass(slots=True)
class Expired:
    """What one pass removed: runs whose evidence went, bodies that no run keeps any more, bytes of those."""

    runs: int = 0
    bodies: int = 0
    bytes: int = 0


def keep_for(citing: Callable[[], Any]) -> None:
    """Exempt the runs whose ids this query selects: an app above says so once, when it starts."""
    _citing.append(citing)


def expire() -> Expired:
    """One pass over runs that ended more than ``AUDIT_EVIDENCE_DAYS`` ago; 0 keeps everything."""
    gone = Expired()
    days = options.evidence_days()
    deadline = time.monotonic() + LONGEST
    while days and time.monotonic() < deadline:
        ids = list(_may_go(days).values_list("pk", flat=True)[:RUNS_AT_ONCE])
        if not ids:
            break
        _remove(ids, gone)
    return gone


def _may_go(days: float) -> Any:
    """Ended runs that did not fail, that no open state rests on and that nobody cites, oldest first."""
    runs = Run.objects.filter(
        Exists(RunEvidence.objects.filter(run=OuterRef("pk"))),
        ~Exists(CheckState.objects.filter(run=OuterRef("pk"), closed_at=None)),
        ~Q(verdict=Verdict.FAIL.value),
        finished_at__lt=clock.now() - timedelta(days=days),
    )
    for citing in _citing:
        runs = runs.exclude(pk__in=citing())
    return runs.order_by("pk")


@transaction.atomic
def _remove(ids: list[int], gone: Expired) -> None:
    links = RunEvidence.objects.filter(run__in=ids)
    names = sorted(set(links.values_list("evidence_id", flat=True)))
    links.delete()
    # A worker that keeps the same bytes again in this very moment fails for it and is retried.
    unused = _unused(names)
    gone.bytes += sum(unused.values_list("size", flat=True))
    gone.bodies += unused.delete()[0]
    gone.runs += len(ids)
    record(
        actor=ACTOR,
        kind="evidence.expired",
        subject=f"runs:{ids[0]}-{ids[-1]}",
        digest=digest_of([ids, names]),
    )


def _unused(names: list[str]) -> Any:
    """Those of these bodies that nothing in the database refers to, whichever app it belongs to."""
    unused = Evidence.objects.filter(pk__in=names)
    for relation in Evidence._meta.get_fields(include_hidden=True):
        if isinstance(relation, ForeignObjectRel):
            users: Any = relation.related_model
            unused = unused.filter(~Exists(users.objects.filter(**{relation.field.name: OuterRef("pk")})))
    return unused
