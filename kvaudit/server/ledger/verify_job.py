"""Queues verifications of the ledger, and carries them out in a worker."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Coalesce, Now

from kvaudit.server import broker, clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.chain_check import ChainCheck, verify_chain, verify_record
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.models.verifications import Outcome, Verification
from kvaudit.server.ledger.searching import in_order, newest_sequence
from kvaudit.server.ledger.services import record

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two signs of life."""
PERIOD = timedelta(days=1)
"""The system verifies by itself when nobody has for so long."""
BROKE_OFF = "The verification broke off, so nothing is known from it; the worker's log names the cause."


class NoLongerOurs(Exception):
    """Another worker has taken the verification."""


@transaction.atomic
def begin(*, actor: Actor) -> Verification:
    """Ask for a verification; one that waits, runs or was lost is sent again instead of a second. Raises
    PermissionDenied unless the actor may read the ledger."""
    require(actor, "view_ledger")
    work = Verification.objects.open().first()
    if work is None:
        work = Verification.objects.create(asked_by=actor_name(actor)[:200], wanted=newest_sequence())
    pk = work.pk
    transaction.on_commit(lambda: _notify_worker(pk))
    return work


def begin_when_due() -> None:
    """From beat: once a day, and again for what no worker has taken."""
    now = clock.now()
    waiting = Verification.objects.claimable(now).order_by("-pk").first()
    if waiting is not None:
        _notify_worker(waiting.pk)
    elif not Verification.objects.filter(asked_at__gt=now - PERIOD).exists():
        begin(actor="system:beat")


def carry_out(pk: int) -> None:
    """Walk the chain, and what it recorded, for a verification that waits, or whose worker is gone. May be called any
    number of times."""
    work = _claim(pk)
    if work is None:
        return
    try:
        found = verify_record(
            lambda walked: verify_chain(walked, noted_before(work)),
            _entries(work),
            alive=lambda: _sign(work, work.wanted),
        )
        _end(work, found)
    except NoLongerOurs:
        log.warning("the verification %s was taken by another worker", pk)
    except Exception:  # whatever stopped it, the page must not say "intact" for it
        log.exception("the verification %s of the ledger broke off", pk)
        Verification.objects.filter(pk=pk, token=work.token, finished_at=None).update(
            finished_at=Now(), outcome=Outcome.ERROR, sentence=BROKE_OFF
        )


def noted_before(work: Verification | None = None) -> Mapping[int, str]:
    """Sequence -> hash that an earlier verification found there: a chain that was rewritten from some entry on
    fits in itself, but not with what was seen before."""
    earlier = Verification.objects.filter(outcome=Outcome.INTACT, entries__gt=0)
    if work is not None:
        earlier = earlier.exclude(pk=work.pk)
    return dict(earlier.order_by("-entries").values_list("entries", "last_hash")[:1])


def keep(found: ChainCheck, *, asked_by: str) -> Verification:
    """Note a verification that was carried out elsewhere (the command), so that pages can say when."""
    return Verification.objects.create(
        asked_by=asked_by,
        started_at=Now(),
        finished_at=Now(),
        wanted=found.entries,
        entries=found.entries,
        last_hash=found.last_hash,
        outcome=Outcome.BROKEN if found.problem else Outcome.INTACT,
        sentence=found.problem[:500],
    )


def _claim(pk: int) -> Verification | None:
    token = uuid.uuid4()
    taken = Verification.objects.claimable(clock.now()).filter(pk=pk)
    if not taken.update(
        token=token,
        started_at=Coalesce("started_at", Now()),
        seen_at=Now(),
        wanted=newest_sequence(),
        entries=0,
    ):
        return None
    return Verification.objects.get(pk=pk)


def _entries(work: Verification) -> Iterator[Entry]:
    """Every entry up to the newest of the beginning; signs of life on the way."""
    last_sign = time.monotonic()
    for entry in in_order(Entry.objects.all(), work.wanted):
        yield entry
        if time.monotonic() - last_sign >= EVERY:
            last_sign = time.monotonic()
            _sign(work, entry.sequence)


def _sign(work: Verification, entries: int) -> None:
    ours = Verification.objects.filter(pk=work.pk, token=work.token, finished_at=None)
    if not ours.update(seen_at=Now(), entries=entries):
        raise NoLongerOurs


@transaction.atomic
def _end(work: Verification, found: ChainCheck) -> None:
    outcome = Outcome.BROKEN if found.problem else Outcome.INTACT
    ours = Verification.objects.filter(pk=work.pk, token=work.token, finished_at=None)
    if not ours.update(
        finished_at=Now(),
        seen_at=Now(),
        entries=found.entries,
        last_hash=found.last_hash,
        outcome=outcome,
        sentence=found.problem[:500],
    ):
        raise NoLongerOurs
    record(
        actor=work.asked_by,
        kind=f"ledger.{'broken' if found.problem else 'verified'}",
        subject=f"ledger:1-{found.entries}",
        digest=found.last_hash or digest_of(found.problem),
    )


def _notify_worker(pk: int) -> None:
    broker.notify_worker(
        "kvaudit.ledger.tasks.verify", pk, queue="passive", waiting=f"The verification {pk} waits"
    )
