"""The Ledger page: how the chain stands, and its entries with links to what they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import orjson
from django.urls import reverse

from kvaudit.auditor.text.acting import bytes_escaped
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.models import User
from kvaudit.server.ledger import searching
from kvaudit.server.ledger.models import Entry, Verification
from kvaudit.server.web.kit import listing, times, untrusted
from kvaudit.server.web.kit.csv_file import INCOMPLETE
from kvaudit.server.web.kit.listing import number, text
from kvaudit.server.web.kit.progress import Live

STALE = timedelta(days=2)
"""The system verifies once a day; what is older than this is no longer said to be intact."""
LATE = timedelta(seconds=60)
KINDS_FROM = 1_000

_SUBJECT = re.compile(r"(run|deployment|incident):([A-Za-z0-9_-]+)(?: |\Z)")


@dataclass(frozen=True, slots=True)
class State:
    """How the ledger stands. ``verdict`` is None while it is empty."""

    verdict: Verdict | None
    sentence: str
    newest: Entry | None = None
    oldest: Entry | None = None
    last: Verification | None = None  # that came to know something
    failed: Verification | None = None  # a later one that did not
    open: Verification | None = None
    lost: bool = False
    late: bool = False  # no worker has taken it for long

    @property
    def live(self) -> Live:
        return Live(reverse("settings-ledger"), reverse("settings-ledger-state") if self.open else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    kind: str = text()
    actor: str = text()
    subject: str = text()
    below: int | None = number("before")


@dataclass(frozen=True, slots=True)
class EntryRow:
    entry: Entry
    address: str  # of what it is about, "" where that has no page


@dataclass(frozen=True, slots=True)
class HashSearch:
    """A hash noted elsewhere, held against the ledger."""

    holds: bool
    sentence: str


def state_of(user: User, now: datetime) -> State:
    """Five queries at most."""
    entries = Entry.objects.visible_to(user)
    newest = entries.order_by("-sequence").first()
    oldest = entries.order_by("sequence").first()
    last = Verification.objects.decided().first()
    ended = Verification.objects.ended().first()
    going = Verification.objects.open().first()
    verdict, sentence = _standing(newest, last, now)
    return State(
        verdict=verdict,
        sentence=sentence,
        newest=newest,
        oldest=oldest,
        last=last,
        failed=ended if ended is not None and ended != last else None,
        open=going,
        lost=going is not None and going.lost(now),
        late=going is not None and going.started_at is None and now - going.asked_at > LATE,
    )


def _standing(newest: Entry | None, last: Verification | None, now: datetime) -> tuple[Verdict | None, str]:
    count = newest.sequence if newest else 0
    if last is None:
        return (None, "The ledger has no entry yet.") if not count else (
            Verdict.INCONCLUSIVE, f"{_entries(count)} that nobody has verified yet.",
        )  # fmt: skip
    when = times.ago(last.finished_at or last.asked_at, now)
    if last.outcome == "broken":
        intact = f" The {last.entries:,} before it were in order." if last.entries else ""
        return Verdict.FAIL, f"The ledger is broken, as found {when}. {last.sentence}{intact}"
    since = count - last.entries
    if since < 0:
        return (
            Verdict.FAIL,
            f"The ledger is broken: {last.entries:,} entries were verified {when}, {count:,} are left.",
        )
    more = f"; {since:,} written since" if since else ""
    if last.finished_at is None or now - last.finished_at > STALE:
        return (
            Verdict.INCONCLUSIVE,
            f"Not known: {_entries(last.entries)} verified {when}{more}. Verify again.",
        )
    return Verdict.PASS, f"Intact: {_entries(last.entries)} verified {when}{more}."


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def entries_of(user: User, filters: Filters) -> tuple[searching.EntryPage, Sequence[EntryRow]]:
    """A page of entries with where they lead."""
    found = searching.page_of(
        Entry.objects.visible_to(user),
        kind=filters.kind,
        actor=filters.actor,
        subject=filters.subject,
        below=filters.below,
    )
    return found, [EntryRow(entry, address_of(entry.subject)) for entry in found.entries]


def kinds(user: User) -> list[str]:
    """Kinds among the newest entries: suggestions for the filter, not all there are."""
    newest = Entry.objects.visible_to(user).order_by("-sequence").values_list("kind", flat=True)
    return sorted(set(newest[:KINDS_FROM]))


def address_of(subject: str) -> str:
    """The page of what an entry is about; it may have gone since."""
    found = _SUBJECT.match(subject)
    if found is None:
        return ""
    what, name = found[1], found[2]
    if what == "deployment":
        return reverse("deployment", args=[name])
    return reverse(what, args=[int(name)]) if name.isascii() and name.isdigit() and len(name) < 19 else ""


def search_hash(user: User, text: str) -> HashSearch | None:
    """Whether a hash that somebody noted is one of the ledger's; None where nothing was asked."""
    digest = untrusted.query_text(text, 200).lower()
    if not digest:
        return None
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        return HashSearch(False, "That is no hash of an entry: it has 64 digits of 0 to 9 and a to f.")
    entry = Entry.objects.visible_to(user).filter(hash=digest).first()
    if entry is None:
        return HashSearch(
            False,
            "No entry has this hash. If it was noted from this ledger, the ledger was cut off or rewritten since.",
        )
    return HashSearch(
        True,
        f"Entry {entry.sequence:,} of {entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC has this hash. Where the ledger "
        "is intact, nothing up to it was changed since it was noted.",
    )


def exported(user: User) -> Iterator[bytes]:
    """Every entry as a line of JSON, oldest first, with all that its hash covers."""
    rows = searching.in_order(Entry.objects.visible_to(user), searching.newest_sequence())
    try:
        for entry in rows:
            told = orjson.dumps(
                {
                    "sequence": entry.sequence,
                    "at": f"{entry.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
                    "actor": entry.actor,
                    "kind": entry.kind,
                    "subject": entry.subject,
                    "digest": entry.digest,
                    "previous": entry.previous,
                    "hash": entry.hash,
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
            yield bytes_escaped(told)  # the hash is of the document, not of its spelling
    except Exception:
        yield b"%s\n" % INCOMPLETE.encode()
        raise  # so that the server logs it and cuts the transfer instead of ending it properly
