"""Sends queued runs to workers: Celery messages that carry run ids, after the commit.

A Run row is the truth and the message only wakes a worker: one that is lost is sent again, one that comes twice
finds nothing to claim. (The columns ``rung_at`` and ``rings`` say when and how often it was sent.)
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

# Each wait is twice as long as the one before, up to 32 times the first: a queue that nobody works off must not
# fill with messages for the same runs.
_TAKE_DUE = """
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
def enqueue_due() -> int:
    """Send every queued run that is due and was not sent lately; returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_DUE, [options.resend_seconds(), MOST_AT_ONCE])
        rows = sorted(cursor.fetchall())
    _after_commit([run_id for run_id, kind in rows if kind == Kind.PASSIVE], Kind.PASSIVE)
    _after_commit([run_id for run_id, kind in rows if kind == Kind.ACTIVE], Kind.ACTIVE)
    return len(rows)


def enqueue_run(run: Run) -> None:
    """Send one run of the current transaction, at once instead of at the next tick of beat."""
    _after_commit([run.pk], Kind(run.kind))


def mark_unsent(run_ids: Sequence[int]) -> None:
    """The worker that got these messages leaves the runs to others: the next dispatch sends them again."""
    Run.objects.filter(pk__in=run_ids, state=RunState.QUEUED).update(rung_at=None, rings=0)


def _after_commit(run_ids: Sequence[int], kind: Kind) -> None:
    if run_ids:
        # Not robust: `_send` catches what a broker may do, and anything else is a defect that has to be seen.
        transaction.on_commit(partial(_send, run_ids, kind), robust=False)


def _send(run_ids: Sequence[int], kind: Kind) -> None:
    """Without a broker the runs stay queued and unsent: the next dispatch sends them again."""
    size = options.PASSIVE_BATCH if kind == Kind.PASSIVE else 1
    quickly = {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.3}
    for start in range(0, len(run_ids), size):
        some = list(run_ids[start : start + size])
        args = (some,) if kind == Kind.PASSIVE else tuple(some)
        try:
            current_app.send_task(TASK[kind], args=args, queue=kind.value, retry_policy=quickly)
        except (BrokerDown, OSError) as fault:
            unsent = run_ids[start:]
            mark_unsent(unsent)
            log.warning("%d runs wait for the broker, which does not answer: %s", len(unsent), fault)
            return
