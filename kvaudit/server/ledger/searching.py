"""Searches the ledger backwards, filtered, a bounded stretch at a time: nothing but the sequence is indexed for
all filters, and a ledger grows without end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Q

from kvaudit.server.ledger.models import Entry, EntryQuerySet

PAGE = 50
STRETCH = 60_000
"""Entries that one page may look at."""
BATCH = 5_000

_WHOLE = re.compile(r"[^\s:]+:[^\s:]+\Z")
"""``run:1`` names one thing: ``run:10`` begins like it and is another."""


@dataclass(frozen=True, slots=True)
class EntryPage:
    """``older`` is where the next page begins (0 for none); ``searched_to`` is set where the stretch ended before
    the page was full: older entries have not been looked at."""

    entries: Sequence[Entry]
    older: int = 0
    searched_to: int = 0


def page_of(
    entries: EntryQuerySet, *, kind: str = "", actor: str = "", subject: str = "", below: int | None = None
) -> EntryPage:
    """Newest first. ``kind`` is a beginning; so is ``subject``, but ``run:1`` is that run alone; ``actor`` is any
    part of the name. Two queries."""
    if kind:
        entries = entries.filter(kind__startswith=kind)
    if _WHOLE.match(subject):
        entries = entries.filter(Q(subject=subject) | Q(subject__startswith=f"{subject} "))
    elif subject:
        entries = entries.filter(subject__startswith=subject)
    if actor:
        entries = entries.filter(actor__icontains=actor)
    if below is None:
        below = newest_sequence() + 1
    lowest = max(below - STRETCH, 0)
    looked_at = entries.filter(sequence__lt=below, sequence__gte=lowest).order_by("-sequence")
    found = list(looked_at[: PAGE + 1])
    if len(found) > PAGE:
        return EntryPage(found[:PAGE], older=found[PAGE - 1].sequence)
    if lowest > 1:
        return EntryPage(found, older=lowest, searched_to=lowest)
    return EntryPage(found)


def in_order(entries: EntryQuerySet, upto: int) -> Iterator[Entry]:
    """Oldest first, up to a sequence, batch by batch: no cursor is held, whatever comes in between."""
    after = 0
    while batch := list(entries.filter(sequence__gt=after, sequence__lte=upto).order_by("sequence")[:BATCH]):
        yield from batch
        after = batch[-1].sequence


def newest_sequence() -> int:
    """0 for an empty ledger."""
    return Entry.objects.order_by("-sequence").values_list("sequence", flat=True).first() or 0
