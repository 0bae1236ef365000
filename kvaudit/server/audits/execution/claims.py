"""Claims runs for a worker, renews the leases, and fences writes of a worker that has lost one; all by database
time.

A claim is one UPDATE. Every later transaction of the worker first locks its runs by id *and* token
(`fence`): what does not come back belongs to somebody else now, and the worker stops probing it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from kvaudit.server.audits import options
from kvaudit.server.audits.models import Kind, Run, RunState


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a run until it is given to another."""

    run_id: int
    token: uuid.UUID
    attempt: int


# statement_timestamp(), not now(): the latter stands still within a transaction.
_CLAIM = """
    WITH ready AS (
        SELECT id FROM audits_run
        WHERE id = ANY(%(ids)s) AND kind = %(kind)s AND state = 'queued'
          AND cancel_requested_at IS NULL
          AND not_before <= statement_timestamp() AND expires_at > statement_timestamp()
          AND (kind = 'passive' OR NOT EXISTS (
                SELECT 1 FROM audits_run other
                WHERE other.deployment_id = audits_run.deployment_id
                  AND other.kind = 'active' AND other.state = 'running'))
        ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE audits_run SET
        state = 'running', attempt = attempt + 1, lease_token = %(token)s,
        lease_until = statement_timestamp() + %(lease)s,
        started_at = COALESCE(started_at, statement_timestamp())
    FROM ready WHERE audits_run.id = ready.id
    RETURNING audits_run.id, audits_run.attempt
"""


def claim(run_ids: Iterable[int], *, kind: Kind) -> list[Claim]:
    """Claim those of these runs that are queued, due and not expired; the others are not returned.

    An active run whose deployment already has an active set running stays queued.
    """
    token = uuid.uuid4()  # one for all: every later look compares run and token together
    wanted: dict[str, Any] = {
        "ids": list(run_ids),
        "kind": kind.value,
        "token": token,
        "lease": timedelta(seconds=options.lease_seconds()),
    }
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_CLAIM, wanted)
            rows = cursor.fetchall()
    except IntegrityError:
        return []  # two active sets claimed in the same instant: the partial unique index decided
    return [Claim(run_id, token, attempt) for run_id, attempt in sorted(rows)]


def fence(claims: Iterable[Claim]) -> dict[int, Run]:
    """Lock the runs that are still ours, for the rest of the transaction: id -> run, in order of id."""
    tokens = {each.run_id: each.token for each in claims}
    rows = (
        Run.objects.select_for_update(no_key=True, of=("self",))
        .select_related("plan")
        .filter(pk__in=tokens, lease_token__in=set(tokens.values()), state=RunState.RUNNING)
        .order_by("pk")
    )
    return {run.pk: run for run in rows if run.lease_token == tokens[run.pk]}


# In order of id, as everybody locks runs. What is spent never shrinks: passive runs report nothing.
_BEAT = """
    UPDATE audits_run SET
        lease_until = statement_timestamp() + %s,
        progress = COALESCE(news.progress::jsonb, audits_run.progress),
        tokens_spent = GREATEST(COALESCE(news.spent, 0), audits_run.tokens_spent)
    FROM (SELECT * FROM unnest(%s::bigint[], %s::uuid[], %s::text[], %s::bigint[]) AS t(id, token, progress, spent)
          ORDER BY id) news
    WHERE audits_run.id = news.id AND audits_run.lease_token = news.token AND audits_run.state = 'running'
    RETURNING audits_run.id, audits_run.cancel_requested_at IS NOT NULL
"""


def heartbeat(
    claims: Sequence[Claim], progress: Mapping[int, str], spent: Mapping[int, int] | None = None
) -> dict[int, bool]:
    """Renew leases, store progress (run id -> JSON text, only where it moved) and prompt tokens spent
    (run id -> over all attempts) in one statement.

    Returns run id -> whether its cancellation was requested; runs that are no longer ours are absent.
    """
    if not claims:
        return {}
    values: list[Any] = [
        timedelta(seconds=options.lease_seconds()),
        [each.run_id for each in claims],
        [each.token for each in claims],
        [progress.get(each.run_id) for each in claims],
        [(spent or {}).get(each.run_id) for each in claims],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_BEAT, values)
        return dict(cursor.fetchall())


def release(claims: Sequence[Claim], *, delay: timedelta) -> int:
    """Put claimed runs back without having tried: the attempt does not count."""
    with transaction.atomic():
        ours = fence(claims)
        for run in ours.values():
            Run.objects.filter(pk=run.pk).update(
                state=RunState.QUEUED,
                attempt=run.attempt - 1,
                lease_token=None,
                lease_until=None,
                rung_at=None,
                not_before=Now() + delay,
            )
    return len(ours)
