"""Computes again what the ledger's entries say of other rows: the seam between the chain and the record.

An app says for some kinds of entries what their digests are of (`derives`), and what must follow from rows that were
recorded (`follows`). Entries are looked at in batches in their order, so that a verification that begins at some entry
needs no more than this. This floor calls what is registered and knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvaudit.server.ledger.models import Entry

BATCH = 200
MOST_ASKED = 5

Differing = Iterable[tuple["Entry", str]]
Derives = Callable[[Sequence["Entry"]], Differing]
Follows = Callable[[], str]

_derives: dict[str, Derives] = {}
_follows: list[Follows] = []
_remarks: list[Follows] = []


class Differs(Exception):
    """The row that an entry is about is not what was recorded; the text is a sentence."""

    def __init__(self, entry: Entry, sentence: str) -> None:
        super().__init__(sentence)
        self.entry, self.sentence = entry, sentence


def derives(*kinds: str, by: Derives) -> None:
    """``by`` gives, of entries of these kinds, those that differ from the rows as they are now, with a sentence."""
    for kind in kinds:
        _derives[kind] = by


def follows(by: Follows) -> None:
    """``by`` gives a sentence for the first row that does not follow from what was recorded, "" for none."""
    if by not in _follows:
        _follows.append(by)


def settled(by: Follows) -> str:
    """The answer to a question of several queries, once it is the same twice: something may have been recorded between
    them."""
    sentence = by()
    for _ in range(MOST_ASKED):
        if not sentence or sentence == (again := by()):
            break
        sentence = again
    return sentence


def remarks(by: Follows) -> None:
    """``by`` gives a sentence that whoever hears "intact" should hear too, "" for none."""
    if by not in _remarks:
        _remarks.append(by)


def what_to_say() -> str:
    """The remarks, each after a space."""
    return "".join(f" {sentence}" for by in _remarks if (sentence := by()))


def compared(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The same entries; raises `Differs` at the first of a batch that differs, after the batch has passed."""
    batch: list[Entry] = []
    try:
        for entry in entries:
            yield entry
            if entry.kind in _derives:
                batch.append(entry)
            if len(batch) >= BATCH:
                full, batch = batch, []
                compare(full)
    except (
        GeneratorExit
    ):  # whoever walks has found the chain broken and goes no further: what differs before is first
        compare(batch)
        raise
    compare(batch)


def compare(batch: Sequence[Entry]) -> None:
    """Raises `Differs` for the first of these entries that differs."""
    groups: dict[Derives, list[Entry]] = {}
    for entry in batch:
        groups.setdefault(_derives[entry.kind], []).append(entry)
    found = [each for by, group in groups.items() for each in by(group)]
    if found:
        raise Differs(*min(found, key=lambda each: each[0].sequence))


def what_follows() -> Iterator[Follows]:
    """Every question, to be asked one after the other."""
    yield from _follows
