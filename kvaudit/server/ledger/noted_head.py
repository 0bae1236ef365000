"""Keeps the ledger's head (the last entry's number and hash) in a file outside the database.

A database that was rolled back to an older dump is intact in itself: only what is kept elsewhere shows that entries
are gone. LEDGER_HEAD_FILE names the file; where none is named, nothing is kept and nothing is noticed.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from django.conf import settings

from kvaudit.server.ledger.models import Entry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Head:
    """``at``: the entry's own time, ISO 8601. An empty ledger has sequence 0."""

    sequence: int
    hash: str = ""
    at: str = ""

    def in_words(self) -> str:
        return (
            f"entry {self.sequence} of {self.at[:16].replace('T', ' ')} UTC" if self.sequence else "no entry"
        )


class HeadUnreadable(Exception):
    """The file is there and tells nothing; the text is a sentence."""


def current() -> Head:
    """The head as it is in the database."""
    entry = Entry.objects.order_by("-sequence").first()
    return Head(entry.sequence, entry.hash, entry.at.isoformat()) if entry else Head(0)


def read() -> Head | None:
    """The head that was noted; None where none was. Raises `HeadUnreadable`."""
    if not settings.LEDGER_HEAD_FILE:
        return None
    path = Path(settings.LEDGER_HEAD_FILE)
    try:
        noted = json.loads(path.read_text(encoding="utf-8"))
        return Head(int(noted["sequence"]), str(noted["hash"]), str(noted["at"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeadUnreadable(
            f"The ledger's head in {path} cannot be read ({error}), so nobody knows whether the database was rolled "
            "back: put the file back from a copy, or remove it once you have looked at the ledger."
        ) from None


def differs() -> str:
    """`problem` of what is noted now: a question of every verification. Raises `HeadUnreadable`."""
    return problem(read())


def problem(noted: Head | None) -> str:
    """ "" or a sentence: the ledger ends before the head that was noted, or holds another entry in its place."""
    if noted is None or not noted.sequence:
        return ""
    there = Entry.objects.filter(sequence=noted.sequence).values_list("hash", flat=True).first()
    if there == noted.hash:
        return ""
    if there is None:
        return (
            f"The database was rolled back: its ledger ends with {current().in_words()}, and {noted.in_words()} was "
            f"noted outside it ({settings.LEDGER_HEAD_FILE})."
        )
    return (
        f"The ledger is not the one that was noted in {settings.LEDGER_HEAD_FILE}: it holds another entry "
        f"{noted.sequence}, so it was rolled back and went on, was rewritten, or belongs to another installation."
    )


def note() -> None:
    """Keep the head as it is now, unless that would hide what is lost."""
    if not settings.LEDGER_HEAD_FILE:
        return
    try:
        noted = read()
        head = current()
        if said := problem(noted):
            log.error("%s", said)
        elif head != noted:
            write(head)
    except (HeadUnreadable, OSError) as fault:
        log.error("the ledger's head was not noted: %s", fault)


def write(head: Head) -> None:
    """Whatever was noted before; raises OSError."""
    path = Path(settings.LEDGER_HEAD_FILE)
    half_done = path.with_name(f".{path.name}.{os.getpid()}")
    with half_done.open("w", encoding="utf-8") as file:
        json.dump(asdict(head), file)
        file.flush()
        os.fsync(file.fileno())
    half_done.replace(path)
