"""Evidence of a result as a list that can be searched by eye: by length, then by round, a row a request.

Results of older releases do not say which request a piece belongs to; those pieces stay a plain list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from kvaudit.auditor.checks.evidence_source import AskedRequest, asked_request
from kvaudit.server.web.kit.untrusted import plain

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")

KINDS = ("request", "response", "sealed")
"""The columns of a request's row."""


@dataclass(frozen=True, slots=True)
class EvidencePiece:
    """Something that was looked at. ``kept`` = its body can be read; a digest alone still proves
    that it was this and nothing else."""

    kind: str
    sha256: str
    source: str
    kept: bool
    address: str = ""  # of its body, where the reader may open it

    @property
    def shown(self) -> SafeString:
        """Its digest, leading to its body. By hand: a page has a thousand."""
        digest = escape(plain(self.sha256, 64))
        if self.kept and self.address:
            return mark_safe(f'<a class="digest digest-cut" href="{self.address}">{digest}</a>')  # noqa: S308
        only = "" if self.kept else ' <span class="tag">digest only</span>'
        return mark_safe(f'<span class="digest digest-cut">{digest}</span>{only}')  # noqa: S308 - escaped


@dataclass(slots=True)
class Sent:
    """One request and what was kept of it. ``anchor`` is "" but for the first of its round."""

    asked: AskedRequest
    anchor: str = ""
    pieces: list[EvidencePiece] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """In the order of `KINDS`, "" for none."""
        return [
            mark_safe(" ".join(piece.shown for piece in self.pieces if piece.kind == kind))  # noqa: S308
            for kind in KINDS
        ]


@dataclass(slots=True)
class Length:
    """All requests of one name ("N+1", "longest"), by round."""

    name: str
    anchor: str
    sent: list[Sent] = field(default_factory=list)

    @property
    def tokens(self) -> str:
        lengths = [one.asked.tokens for one in self.sent]
        low, high = min(lengths), max(lengths)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    @property
    def endings(self) -> str:
        """``58 refused, 2 busy``."""
        ended = Counter(one.asked.ended for one in self.sent)
        return ", ".join(f"{count:,} {word}" for word, count in ended.most_common())


@dataclass(frozen=True, slots=True)
class EvidenceList:
    lengths: Sequence[Length]
    others: Sequence[EvidencePiece]
    anchors: Mapping[tuple[str, int], str]

    @property
    def requests(self) -> int:
        return sum(len(length.sent) for length in self.lengths)

    @property
    def pieces(self) -> int:
        return len(self.others) + sum(len(one.pieces) for length in self.lengths for one in length.sent)

    def at(self, name: str, number: int = 0) -> str:
        """The fragment of a length's evidence, or of a round's (from 1); "" where none is kept."""
        return self.anchors.get((name, number), "")


def evidence_of(stored: Iterable[Any], kept: AbstractSet[str], key: object, folder: str = "") -> EvidenceList:
    """``stored`` is `Result.evidence`, ``kept`` the digests whose bodies the run holds; ``key`` tells the
    fragments of one result from those of another on the page. ``folder`` + digest is the address of a body, ""
    for readers who may not open any."""
    lengths: dict[str, Length] = {}
    others = []
    latest: Sent | None = None
    for item in stored:
        if not isinstance(item, Mapping):
            continue
        kind, sha256, source = (str(item.get(name) or "") for name in ("kind", "sha256", "source"))
        opens = folder and sha256 in kept and _DIGEST.match(sha256)
        piece = EvidencePiece(kind, sha256, source, sha256 in kept, f"{folder}{sha256}/" if opens else "")
        asked = asked_request(source) if kind in KINDS else None
        if asked is None:
            others.append(piece)
            continue
        length = lengths.setdefault(asked.name, Length(asked.name, f"evidence-{key}-{len(lengths) + 1}"))
        if latest is None or latest.asked != asked or kind == KINDS[0]:
            latest = Sent(asked)
            length.sent.append(latest)
        latest.pieces.append(piece)
    anchors = {}
    for name, length in lengths.items():
        anchors[name, 0] = length.anchor
        length.sent.sort(key=lambda one: one.asked.round)  # stable: within a round in the order of time
        for one in length.sent:
            if (name, one.asked.round) not in anchors:
                one.anchor = anchors[name, one.asked.round] = f"{length.anchor}-{one.asked.round}"
    return EvidenceList(list(lengths.values()), others, anchors)
