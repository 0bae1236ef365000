"""Drops old evidence: bodies that runs kept long ago and that nothing rests on.

Only the stored bytes go. Verdicts, sentences, measures, digests and the ledger stay, so a copy that
somebody else holds can still be compared with its digest. What a *failing* run saw is kept for good.

The application's database role cannot delete evidence: this runs in a process of its own, as retention's role
(``manage.py expire_evidence``). What a run had kept is noted (`PrunedEvidence`) and chained before it goes, so that the
run's digest can be computed for good. (A signature over that entry has its place in `_prune`.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, ForeignObjectRel, OuterRef, Q

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import options
from kvaudit.server.audits.evidence import run_proof
from kvaudit.server.audits.execution import run_verdict
from kvaudit.server.audits.models import CheckState, Evidence, PrunedEvidence, Result, Run, RunEvidence
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import Act, record_all

log = logging.getLogger(__name__)

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
    doubtful: set[int] = set()
    days = options.evidence_days()
    deadline = time.monotonic() + LONGEST
    while days and time.monotonic() < deadline:
        runs = list(_may_go(days).exclude(pk__in=doubtful)[:RUNS_AT_ONCE])
        if not runs:
            break
        doubts = _doubts(runs)
        doubtful |= set(doubts)
        if sound := [run for run in runs if run.pk not in doubts]:
            _remove(sound, gone)
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


def _doubts(runs: Sequence[Run]) -> dict[int, str]:
    """Runs that are not what the ledger recorded: what they kept may show how, so it stays."""
    doubts = run_proof.unproved(runs)
    found = {pk: doubts[pk] for pk in run_proof.entries_of(doubts)}
    for sentence in found.values():
        log.error("its evidence is not dropped: %s", sentence)
    return found


@transaction.atomic
def _remove(runs: Sequence[Run], gone: Expired) -> None:
    ids = [run.pk for run in runs]
    acts = _prune(runs)
    links = RunEvidence.objects.filter(run__in=ids)
    names = sorted(set(links.values_list("evidence_id", flat=True)))
    links.delete()
    # A worker that keeps the same bytes again in this very moment fails for it and is retried.
    unused = _unused(names)
    gone.bytes += sum(unused.values_list("size", flat=True))
    gone.bodies += unused.delete()[0]
    gone.runs += len(ids)
    acts.append(Act("evidence.expired", f"runs:{ids[0]}-{ids[-1]}", digest_of([ids, names])))
    record_all(actor=ACTOR, acts=acts)


def _prune(runs: Sequence[Run]) -> list[Act]:
    """Note what these runs keep; returns what the ledger is told of it, in the same transaction."""
    kept = run_proof.kept_of(run.pk for run in runs)
    results: dict[int, list[Result]] = {run.pk: [] for run in runs}
    for result in Result.objects.filter(run__in=results):
        results[result.run_id].append(result)
    rows = PrunedEvidence.objects.bulk_create(
        PrunedEvidence(
            run=run,
            kept=sorted(list(each) for each in kept[run.pk]),
            digest=run_verdict.whole_digest(run, results[run.pk], kept[run.pk]),
        )
        for run in runs
    )
    return [
        Act(run_proof.PRUNED, f"run:{row.run_id} pruned:{row.pk}", run_proof.pruned_digest(row))
        for row in rows
    ]


def _unused(names: list[str]) -> Any:
    """Those of these bodies that nothing in the database refers to, whichever app it belongs to."""
    unused = Evidence.objects.filter(pk__in=names)
    for relation in Evidence._meta.get_fields(include_hidden=True):
        if isinstance(relation, ForeignObjectRel):
            users: Any = relation.related_model
            unused = unused.filter(~Exists(users.objects.filter(**{relation.field.name: OuterRef("pk")})))
    return unused
