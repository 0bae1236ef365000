"""Markers that surfaced in an answer of `canary` or `concurrency`: the proof first, then where and between whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.server.web.kit.measure_values import count, rows, tokens

MOST = 100
MOST_PAGES = 12
MARKER_WORDS = 6

UNKNOWN_PAGES = (
    "no record's number was in the text that came back, or the length of the planted records is not known"
)
"""Of results that do not say why themselves."""


@dataclass(frozen=True, slots=True)
class Hit:
    """``round`` counts from 1 as in the matrix, None where the check has no rounds. ``why`` says why ``pages`` are
    unknown; both are "" where the check does not look for pages."""

    words: str
    run: str
    request: str
    tokens: int | None
    round: int | None
    read_by: str
    planted_by: str
    pages: str
    why: str
    earlier: bool
    anchor: str


@dataclass(frozen=True, slots=True)
class Hits:
    rows: Sequence[Hit]
    left_out: int

    @property
    def rounds(self) -> bool:
        return any(hit.round is not None for hit in self.rows)

    @property
    def reasons(self) -> list[str]:
        """Why pages are unknown, each once."""
        return list(dict.fromkeys(hit.why for hit in self.rows if hit.why))

    @property
    def paged(self) -> bool:
        return any(hit.pages for hit in self.rows)


def hits_of(measures: Mapping[str, Any], anchors: Callable[[str, int], str]) -> Hits | None:
    """None where nothing surfaced. ``anchors``: (name of a request, round) -> fragment of its evidence."""
    found = rows(measures.get("hits"))
    if not found:
        return None
    return Hits([_hit(hit, anchors) for hit in found[:MOST]], max(0, len(found) - MOST))


def _hit(hit: Mapping[str, Any], anchors: Callable[[str, int], str]) -> Hit:
    at, run = count(hit.get("round")), count(hit.get("run"))
    number = None if at is None else at + 1
    request = str(hit.get("cell") or hit.get("arm") or "")
    pages, why = pages_of([hit]) if "page_ordinals" in hit else ("", "")
    return Hit(
        words=str(hit.get("words") or ""),
        run="" if run is None else f"{run} of {MARKER_WORDS}",
        request=request,
        tokens=tokens(hit.get("tokens")),
        round=number,
        read_by=str(hit.get("read_by") or ""),
        planted_by=str(hit.get("planted_by") or ""),
        pages=pages,
        why=why,
        earlier=hit.get("planted_in_an_earlier_run") is True,
        anchor=anchors(request, number or 0) or anchors(request, 0),
    )


def pages_of(hits: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """(the pages of the planted text that surfaced, about; why there is none to name)."""
    found: set[int] = set()
    why = ""
    for hit in hits:
        stored = hit.get("page_ordinals")
        pages = [count(item) for item in stored] if isinstance(stored, list) else []
        found.update(page for page in pages if page is not None)
        said = hit.get("page_ordinals_unknown")
        why = why or (said if isinstance(said, str) and said else UNKNOWN_PAGES)
    if not found:
        return "", why
    shown = ", ".join(f"{page:,}" for page in sorted(found)[:MOST_PAGES])
    more = f" and {len(found) - MOST_PAGES:,} more" if len(found) > MOST_PAGES else ""
    return shown + more, ""
