"""Is the chain intact, and is the record what was chained? ``kvaudit ledger verify``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvaudit.server.ledger.models import Entry

EXIT_INTACT, EXIT_BROKEN, EXIT_ERROR = 0, 1, 3


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
    from kvaudit.server.ledger.services import hash_of

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
    from kvaudit.server.ledger import record_check as rederiving

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


def main(argv: Sequence[str]) -> int:
    """``kvaudit ledger verify [--last-hash HASH]``: 0 intact, 1 broken, 3 not verifiable."""
    parser = _Parser(prog="kvaudit ledger")
    commands = parser.add_subparsers(dest="command", required=True)
    verify = commands.add_parser(
        "verify", help="check every entry's hash, its link to the one before, and the rows that it recorded"
    )
    verify.add_argument("--last-hash", default="", help="a hash noted earlier that must still be there")
    arguments = parser.parse_args(list(argv))

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")
    import django
    from django.db import Error

    try:
        django.setup()
    except SystemExit as stopped:  # settings leave with a sentence and 1, which here would read as broken
        sys.stderr.write(f"{stopped.code}\n")
        return EXIT_ERROR
    from kvaudit.server.ledger import record_check as rederiving
    from kvaudit.server.ledger import verify_job
    from kvaudit.server.ledger.models import Entry

    try:
        entries = Entry.objects.order_by("sequence").iterator(chunk_size=5000)
        noted = verify_job.noted_before()
        found = verify_record(lambda walked: verify_chain(walked, noted), entries)
        noted_is_there = not arguments.last_hash or Entry.objects.filter(hash=arguments.last_hash).exists()
    except Error as error:
        return _say(f"The ledger could not be read: {str(error).strip()}", EXIT_ERROR)
    if found.problem or noted_is_there:  # a hash that somebody mistyped says nothing of the ledger
        with suppress(Error):  # a role that may only read verifies all the same
            verify_job.keep(found, asked_by="command:ledger-verify")
    if found.problem:
        return _say(f"Ledger broken. {found.problem} {found.intact}", EXIT_BROKEN)
    if not noted_is_there:
        return _say(
            f"Ledger broken. No entry has the hash {arguments.last_hash}: the end was cut off or rewritten.",
            EXIT_BROKEN,
        )
    return _say(
        f"Ledger intact: {found.entries} entries, last hash {found.last_hash or '-'}.{rederiving.what_to_say()}",
        EXIT_INTACT,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """Usage errors are 3: argparse's own 2 would read as inconclusive."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_ERROR, f"{self.prog}: {message}\n")


def _say(sentence: str, code: int) -> int:
    sys.stdout.write(sentence + "\n")
    return code
