"""Queries that count the requests of a danger zone in the reader's own logs, for whoever does not hand one over.

A query looks at whole seconds around an opening: rather a request more than one less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kvaudit.server.inquiries.exposure.timespans import Span, Statement

MOST_ZONES = 200
"""So many fit into a query that a log store takes and a person can read; what is left out is said in it."""


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    text: str


def queries(statement: Statement) -> list[Query]:
    """One per kind of log store; empty where no danger zone with known lengths was open. Only numbers and times
    go in: nothing that anybody named."""
    zones = statement.zones[-MOST_ZONES:]
    if not zones:
        return []
    left = left_out(statement)
    return [
        Query(name, f"{comment} {left}\n{text}" if left else text)
        for name, comment, text in (
            ("SQL (PostgreSQL)", "--", _sql(zones, "TIMESTAMPTZ '{}'", "count(*)")),
            ("BigQuery", "--", _sql(zones, "TIMESTAMP '{}'", "COUNT(*)", table="`project.dataset.requests`")),
            ("Loki (LogQL)", "#", _loki(zones)),
            ("jq, over JSON lines", "#", _jq(zones)),
        )
    ]


def left_out(statement: Statement) -> str:
    """Which openings the queries do not ask for, as a sentence; "" where they ask for all."""
    missing = statement.zones[:-MOST_ZONES]
    if not missing:
        return ""
    first, last = missing[0].start, max(each.end for each in missing)
    return (
        f"Not in these queries: the {len(missing):,} earliest of {len(statement.zones):,} openings, "
        f"{_iso(_floor(first))} to {_iso(_ceil(last))}. Ask for a shorter window to get them."
    )


def _sql(zones: Sequence[Span], moment: str, count: str, table: str = "requests") -> str:
    where = "\n   OR ".join(
        f"(time >= {moment.format(_iso(_floor(span.start)))} AND time < {moment.format(_iso(_ceil(span.end)))}"
        f" AND prompt_tokens >= {span.zone[0]} AND prompt_tokens < {span.zone[1]})"
        for span in zones
        if span.zone
    )
    return (
        f"SELECT tenant, {count} AS requests, min(time) AS first, max(time) AS last\nFROM {table}\nWHERE {where}\n"
        "GROUP BY tenant ORDER BY requests DESC;"
    )


def _loki(zones: Sequence[Span]) -> str:
    """One query per opening. A range looks back from its end, and leaves its own first instant out."""
    lines = []
    for span in zones:
        if span.zone is None:
            continue
        end = _ceil(span.end)
        seconds = int((end - _floor(span.start)).total_seconds()) + 1
        lines.append(
            f'# at {_iso(end)}\nsum by (tenant) (count_over_time({{app="gateway"}} | json'
            f" | prompt_tokens >= {span.zone[0]} | prompt_tokens < {span.zone[1]} [{seconds}s]))"
        )
    return "\n".join(lines)


def _jq(zones: Sequence[Span]) -> str:
    """Times are compared as text up to their second: `.5Z` sorts before `Z`."""
    tests = "\n  or ".join(
        f'($t >= "{_second(_floor(span.start))}" and $t < "{_second(_ceil(span.end))}"'
        f" and .prompt_tokens >= {span.zone[0]} and .prompt_tokens < {span.zone[1]})"
        for span in zones
        if span.zone
    )
    return (
        "# .time is ISO 8601 in UTC\n"
        f"jq -r '.time[:19] as $t | select({tests}) | .tenant' requests.jsonl | sort | uniq -c | sort -rn"
    )


def _floor(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)


def _ceil(moment: datetime) -> datetime:
    floor = _floor(moment)
    return floor if floor == moment else floor + timedelta(seconds=1)


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def _iso(moment: datetime) -> str:
    return f"{_second(moment)}Z"
