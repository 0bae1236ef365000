"""Tells people that the ledger was found broken. The ledger lies below and calls nobody: from beat."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from kvaudit.server.ledger.models.verifications import Outcome, Verification
from kvaudit.server.notify.models import Event
from kvaudit.server.notify.services import enqueue

NEXT = (
    "Somebody with a fleet-wide role should open the ledger's page, which names the first entry that does not fit, and "
    "hold the copy that was taken away last against it."
)


@transaction.atomic
def notify_of_ledger() -> bool:
    """Whether somebody is told: of each time that the ledger, in order before or never looked at, was found broken,
    and not again for every verification that finds it broken still. While no channel hears of it, it stays to be
    told. Safe to run twice at once."""
    locked = Verification.objects.to_tell().select_for_update(skip_locked=True)
    found = Verification.objects.filter(pk__in=[verification.pk for verification in locked])
    begun = found.beginning().order_by("finished_at", "pk").last()
    if begun is not None and not _tell(begun):
        return False
    found.update(told=True)
    return begun is not None


def _tell(broken: Verification) -> bool:
    """Whether a channel hears of it."""
    last = Verification.objects.decided().first()
    over = last is not None and last.outcome != Outcome.BROKEN
    when = f"{broken.finished_at:%Y-%m-%d %H:%M} UTC"
    subject = f"The ledger was found broken on {when}"
    since = " A later verification found it in order." if over else ""
    messages = enqueue(
        event=Event.LEDGER.value,
        subject=subject,
        payload={
            "event": Event.LEDGER.value,
            "summary": f"{subject}: it was changed, or part of it is missing. What it proves of audits and of people's "
            f"acts is in doubt.{since}",
            "next": NEXT,
            "found_at": broken.finished_at.isoformat() if broken.finished_at else "",
            "url": f"{settings.BASE_URL}/settings/ledger/",
        },
        team=None,
    )
    return bool(messages)
