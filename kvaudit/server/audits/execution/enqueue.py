"""Ringing for workers: Celery messages that carry run ids, sent after commit.

A Run row is the truth and the message only a doorbell: one that is lost is rung again, one that comes
twice finds nothing to claim.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from celery import current_app
from django.db import connection, transaction
from kombu.exceptions import OperationalError as BrokerDown

from kvaudit.server.audits import options
from kvaudit.server.audits.models import Kind, Run, RunState

log = logging.getLogger(__name__)

MOST_AT_ONCE = 5_000

TASK = {
    Kind.PASSIVE: "kvaudit.audits.tasks.execute_passive",
    Kind.ACTIVE: "kvaudit.audits.tasks.execute_active",
}
"""By name, as the broker knows them: tasks stand above what they carry out."""

_RING = """
    UPDATE audits_run SET rung_at = statement_timestamp(), rings = LEAST(rings + 1, 1000)
    WHERE id IN (
        SELECT id FROM audits_run
        WHERE state = 'queued'
          AND not_before <= statement_timestamp() AND expires_at > statement_timestamp()
          AND (rung_at IS NULL
               OR rung_at < statement_timestamp() - make_interval(secs => %s * 2 ^ LEAST(rings - 1, 5)))
        ORDER BY not_before, id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id, kind
"""


@transaction.atomic
def ring() -> int:
    """Ring for every queued run that is due and was not rung for lately; returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_RING, [options.ring_again_seconds(), MOST_AT_ONCE])
        rows = sorted(cursor.fetchall())
    _after_commit([run_id for run_id, kind in rows if kind == Kind.PASSIVE], Kind.PASSIVE)
    _after_commit([run_id for run_id, kind in rows if kind == Kind.ACTIVE], Kind.ACTIVE)
    return len(rows)


def ring_for(run: Run) -> None:
    """Ring for one run of the current transaction, at once instead of at the next tick of beat."""
    _after_commit([run.pk], Kind(run.kind))


def ring_anew(run_ids: Sequence[int]) -> None:
    """The worker that heard these bells leaves the runs to others: the next dispatch rings again."""
    Run.objects.filter(pk__in=run_ids, state=RunState.QUEUED).update(rung_at=None, rings=0)


def _after_commit(run_ids: Sequence[int], kind: Kind) -> None:
    if run_ids:
        transaction.on_commit(partial(_send, run_ids, kind), robust=False)


def _send(run_ids: Sequence[int], kind: Kind) -> None:
    """Without a broker the runs stay queued, unrung: the next dispatch rings again."""
    size = options.PASSIVE_BATCH if kind == Kind.PASSIVE else 1
    quickly = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.3}
    for start in range(0, len(run_ids), size):
        some = list(run_ids[start : start + size])
        args = (some,) if kind == Kind.PASSIVE else tuple(some)
        try:
            current_app.send_task(TASK[kind], args=args, queue=kind.value, retry_policy=quickly)
        except (BrokerDown, OSError) as fault:
            unsent = run_ids[start:]
            ring_anew(unsent)
            log.warning("%d runs wait for the broker, which does not answer: %s", len(unsent), fault)
            return
