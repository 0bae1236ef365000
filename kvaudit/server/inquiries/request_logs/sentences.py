"""What a request log is held against: the zones of the exposure statement, or lengths that somebody gives; and what
there is to say beside the count of those inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.exposure.report import known_lengths
from kvaudit.server.inquiries.exposure.timespans import Statement
from kvaudit.server.inquiries.models import RequestLog
from kvaudit.server.inquiries.request_logs.classification import Zone, zones_of
from kvaudit.server.inquiries.request_logs.reader import MOST_TOKENS

MOST_LENGTHS = 5  # in a sentence


@dataclass(frozen=True, slots=True)
class HitFilter:
    zones: Sequence[Zone]
    problem: str = ""


def zones(deployment: Deployment, statement: Statement, low: str, high: str) -> HitFilter:
    """``low`` and ``high`` as they were typed; where both are empty, every zone that was open, at its own time, and
    beside it the times shown leaking or not known, with every length that is known of the deployment since."""
    if not low.strip() and not high.strip():
        return HitFilter(zones_of(statement, known_lengths(deployment, statement.since)))
    first, last = _tokens(low) if low.strip() else 0, _tokens(high) if high.strip() else MOST_TOKENS
    if first is None or last is None or first >= last:
        return HitFilter(
            [],
            "The lengths are whole numbers of tokens, the lower one first: for instance 681274 and 1048570.",
        )
    return HitFilter([Zone(statement.since, statement.until, first, last)])


def _tokens(text: str) -> int | None:
    digits = text.strip().replace(",", "").replace("_", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 12 else None


def beside(log: RequestLog) -> list[str]:
    """Sentences of requests that the count of those inside leaves out: nobody may read them as not exposed."""
    if log.unknown is None or log.leaking is None or log.longer is None:
        return [
            "How many requests came while nothing was known was not counted when this log was imported: import it "
            "again."
        ]
    found = []
    lengths = lengths_in_words(log)
    if log.leaking:
        of = f"of these lengths ({lengths})" if lengths else "of any length (no dangerous length is known)"
        found.append(f"{_requests(log.leaking)} {of} came while the deployment was shown leaking.")
    if log.unknown and lengths:
        more = _requests(log.unknown, " more" if log.inside or log.leaking else "")
        found.append(
            f"{more} of these lengths ({lengths}) came while nothing was known (no valid pass covers that time)."
        )
    elif log.unknown:
        found.append(
            f"{_requests(log.unknown)} came while nothing was known (no valid pass covers that time). No danger zone "
            "with known lengths is known of this deployment, so requests of every length are counted there."
        )
    if log.longer:
        found.append(
            f"{_requests(log.longer)} that came then {'was' if log.longer == 1 else 'were'} longer than every danger "
            "zone known: nothing is known of those either."
        )
    return found


def lengths_in_words(log: RequestLog) -> str:
    """``5,322 to 6,999 tokens``; "" where no dangerous length was known."""
    known = log.known_lengths
    if not known:
        return ""
    parts = [f"{low:,} to {high - 1:,}" for low, high in known[:MOST_LENGTHS]]
    more = f" and {len(known) - MOST_LENGTHS:,} more" if len(known) > MOST_LENGTHS else ""
    return f"{', '.join(parts)}{more} tokens"


def _requests(number: int, more: str = "") -> str:
    return f"{number:,}{more} {'request' if number == 1 else 'requests'}"
