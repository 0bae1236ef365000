"""Is the chain intact, and is the record what was chained?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvaudit.server.ledger import record_check as rederiving
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.services import hash_of


@dataclass(frozen=True, slots=True)
class Found:
    """``problem`` is a sentence that names the first bad entry, "" when the chain is intact."""

    entries: int
    last_hash: str = ""
    problem: str = ""
    chained: bool = False  # the entries themselves are in order: what should follow from them is not

    @property
    def intact(self) -> str:
        """What is in order all the same, as a sentence."""
        if self.chained:
            return f"The {self.entries} entries themselves are intact."
        return f"The {self.entries} before it are intact."


def verify_chain(entries: Iterable[Entry], noted: Mapping[int, str] = MappingProxyType({})) -> Found:
    """Walk the entries in order of sequence and stop at the first that does not fit. What a chain
    alone cannot show is a cut-off or rewritten end: ``noted`` (sequence -> hash seen there earlier) shows it."""
    count, previous = 0, ""
    for entry in entries:
        expected = count + 1
        if entry.sequence != expected:
            return Found(
                count, previous, f"Entry {expected} is missing: entry {entry.sequence} follows {count}."
            )
        if entry.previous != previous:
            return Found(
                count,
                previous,
                f"Entry {entry.sequence} does not follow the entry before it: one of the two was replaced.",
            )
        if entry.hash != hash_of(entry):
            return Found(count, previous, f"Entry {entry.sequence} was altered: its hash is wrong.")
        if noted.get(expected, entry.hash) != entry.hash:
            return Found(
                count,
                previous,
                f"Entry {expected} has another hash than when it was verified before: the ledger was rewritten "
                "at it or before it.",
            )
        count, previous = expected, entry.hash
    if gone := [sequence for sequence in noted if sequence > count]:
        return Found(
            count, previous, f"Entry {max(gone)} was verified before and is gone: the end was cut off."
        )
    return Found(count, previous)


def verify_record(
    walk: Callable[[Iterable[Entry]], Found],
    entries: Iterable[Entry],
    *,
    alive: Callable[[], None] = lambda: None,
) -> Found:
    """A walk along the chain (`verify_chain`), and whether the rows that the entries are about are still those that
    were recorded, and what follows from them still follows. ``alive`` is called between questions."""
    walked = rederiving.compared(entries)
    try:
        found = walk(walked)
        walked.close()  # type: ignore[attr-defined]
    except rederiving.Differs as differs:
        return Found(differs.entry.sequence - 1, differs.entry.previous, differs.sentence)
    if found.problem:
        return found
    for question in rederiving.what_follows():
        alive()
        if sentence := rederiving.settled(question):
            return Found(found.entries, found.last_hash, sentence, chained=True)
    return found
