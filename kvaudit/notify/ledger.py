"""Telling people that the ledger was found broken. The ledger lies below and calls nobody: from beat."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from kvaudit.ledger.verifications import Outcome, Verification
from kvaudit.notify.models import Event
from kvaudit.notify.services import enqueue

NEXT = (
    "Somebody with a fleet-wide role should open the ledger's page, which names the first entry that does not fit, and "
    "hold the copy that was taken away last against it."
)


@transaction.atomic
def tell_of_ledger() -> bool:
    """Whether a message was put into the outbox: once for a ledger that was in order before, or never looked at, and
    not again for every verification that finds it broken still. Safe to run twice at once."""
    found = list(Verification.objects.to_tell().select_for_update(skip_locked=True))
    if not found:
        return False
    first = found[0]
    Verification.objects.filter(pk__in=[each.pk for each in found]).update(told=True)
    before = Verification.objects.decided().filter(finished_at__lt=first.finished_at).first()
    if before is not None and before.outcome == Outcome.BROKEN:
        return False
    when = f"{first.finished_at:%Y-%m-%d %H:%M} UTC"
    enqueue(
        event=Event.LEDGER.value,
        subject=f"The ledger is broken, as found on {when}",
        payload={
            "event": Event.LEDGER.value,
            "summary": f"The ledger is broken, as found on {when}: it was changed, or part of it is missing. What it "
            "proves of audits and of people's acts is in doubt.",
            "next": NEXT,
            "found_at": first.finished_at.isoformat() if first.finished_at else "",
            "url": f"{settings.BASE_URL}/settings/ledger/",
        },
        team=None,
    )
    return True
