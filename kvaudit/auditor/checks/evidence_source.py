"""Writes into the source of a piece of evidence which request it belongs to, and reads it back, so that a list
of hundreds can be searched by eye: ``POST /v1/completions, N+1 (8,187 tokens), tenant b, round 7, refused``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kvaudit.auditor.checks.prober_protocol import Reply
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.verdict import Evidence

WITHOUT_NONCE = "without nonce"
"""How an answered request ended whose text does not hold what its prompt asked for."""

_NAME, _TENANT = 40, 120  # characters that fit a source of 300

_ASKED = re.compile(
    r"(?P<call>\S+ \S+), (?P<name>.+?) \((?P<tokens>[\d,]{1,15}) tokens\), tenant (?P<tenant>.*), "
    r"round (?P<round>\d{1,9}), (?P<ended>[a-z ]{1,20})\Z",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """One request of a check. ``round`` counts from 1; ``ended`` is an `Outcome`'s word or "without nonce"."""

    call: str
    name: str
    tokens: int
    tenant: str
    round: int
    ended: str


def labelled_evidence(reply: Reply, found: Trial) -> tuple[Evidence, ...]:
    """The reply's evidence, its source saying which request it was and how that ended."""
    ended = WITHOUT_NONCE if found.wrong else found.outcome.value
    said = (
        f", {found.name[:_NAME]} ({found.tokens:,} tokens), tenant {found.tenant[:_TENANT]}, "
        f"round {found.repeat + 1}, {ended}"
    )
    return tuple(replace(item, source=item.source + said) for item in reply.evidence)


def asked_request(source: str) -> AskedRequest | None:
    """What a source says of its request; None where it says nothing (a reading, or an older release)."""
    found = _ASKED.match(source)
    if found is None:
        return None
    return AskedRequest(
        call=found["call"],
        name=found["name"],
        tokens=int(found["tokens"].replace(",", "") or 0),
        tenant=found["tenant"],
        round=int(found["round"]),
        ended=found["ended"],
    )
