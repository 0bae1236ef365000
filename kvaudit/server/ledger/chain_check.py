"""Checks that the chain is intact, and that the record is what was chained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kvaudit.server.ledger import record_check
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.services import hash_of


@dataclass(frozen=True, slots=True)
class ChainCheck:
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


def verify_chain(entries: Iterable[Entry], noted: Mapping[int, str] = MappingProxyType({})) -> ChainCheck:
    """Walk the entries in order of sequence and stop at the first that does not fit. What a chain
    alone cannot show is a cut-off or rewritten end: ``noted`` (sequence -> hash seen there earlier) shows it."""
    count, previous = 0, ""
    for entry in entries:
        expected = count + 1
        if entry.sequence != expected:
            return ChainCheck(
                count, previous, f"Entry {expected} is missing: entry {entry.sequence} follows {count}."
            )
        if entry.previous != previous:
            return ChainCheck(
                count,
                previous,
                f"Entry {entry.sequence} does not follow the entry before it: one of the two was replaced.",
            )
        if entry.hash != hash_of(entry):
            return ChainCheck(count, previous, f"Entry {entry.sequence} was altered: its hash is wrong.")
        if noted.get(expected, entry.hash) != entry.hash:
            return ChainCheck(
                count,
                previous,
                f"Entry {expected} has another hash than when it was verified before: the ledger was rewritten "
                "at it or before it.",
            )
        count, previous = expected, entry.hash
    if gone := [sequence for sequence in noted if sequence > count]:
        return ChainCheck(
            count, previous, f"Entry {max(gone)} was verified before and is gone: the end was cut off."
        )
    return ChainCheck(count, previous)


def verify_record(
    walk: Callable[[Iterable[Entry]], ChainCheck],
    entries: Iterable[Entry],
    *,
    alive: Callable[[], None] = lambda: None,
) -> ChainCheck:
    """A walk along the chain (`verify_chain`), and whether the rows that the entries are about are still those that
    were recorded, and what follows from them still follows. ``alive`` is called between questions."""
    walked = record_check.compared(entries)
    try:
        found = walk(walked)
        walked.close()  # type: ignore[attr-defined]
    except record_check.Differs as differs:
        return ChainCheck(differs.entry.sequence - 1, differs.entry.previous, differs.sentence)
    if found.problem:
        return found
    for question in record_check.what_follows():
        alive()
        if sentence := record_check.settled(question):
            return ChainCheck(found.entries, found.last_hash, sentence, chained=True)
    return found
