"""Tells whether waivers and attestations are what the ledger recorded of them."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit.server.checklists.models import Attestation, Decision, Waiver
from kvaudit.server.checklists.scope import Scope
from kvaudit.server.ledger import record_check
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.models import Entry

DECIDED = ("waiver.approved", "waiver.refused", "waiver.withdrawn")
ENDED = "waiver.ended"
MADE = "attestation.made"


def waivers_differing(entries: Sequence[Entry]) -> list[tuple[Entry, str]]:
    """Of entries of decided and ended waivers, those whose row differs or is gone. (What was asked for is in the entry
    of the decision too.)"""
    rows = Waiver.objects.in_bulk({_number(entry) for entry in entries})
    found = []
    for entry in entries:
        row = rows.get(_number(entry))
        if row is None:
            found.append((entry, f"The waiver that entry {entry.sequence} recorded is gone."))
        elif entry.digest != digest(row, ended=entry.kind == ENDED):
            found.append((entry, f"Waiver {row.pk} is not what entry {entry.sequence} recorded."))
    return found


def digest(row: Waiver, *, ended: bool) -> str:
    """What an entry of a decision or of an end holds."""
    end = row.end_reason if ended else ""
    return digest_of([row.reason, row.expires_at.isoformat(), row.decision, row.decision_note, end])


def in_force() -> str:
    """The first approved waiver or attestation that the ledger does not know, as a sentence."""
    approved = Waiver.objects.filter(decision=Decision.APPROVED).select_related("deployment__team", "team")
    wanted = {
        f"{Scope.of(row.deployment, row.team).subject} item:{row.item} waiver:{row.pk}": f"waiver {row.pk}"
        for row in approved.order_by("pk")
    }
    made = Attestation.objects.select_related("deployment__team", "team").order_by("pk")
    wanted |= {
        f"{Scope.of(row.deployment, row.team).subject} item:{row.item} attestation:{row.pk}": f"attestation {row.pk}"
        for row in made
    }
    known = set(
        Entry.objects.filter(subject__in=wanted, kind__in=("waiver.approved", MADE)).values_list(
            "subject", flat=True
        )
    )
    unknown = next((name for subject, name in wanted.items() if subject not in known), "")
    return f"The ledger does not know of {unknown}: nobody approved or made it." if unknown else ""


def register() -> None:
    """Once, when the app starts."""
    record_check.derives(*DECIDED, ENDED, by=waivers_differing)
    record_check.follows(in_force)


def _number(entry: Entry) -> int:
    digits = entry.subject.rpartition(" waiver:")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
