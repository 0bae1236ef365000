"""Queries that count the requests of a danger zone in the reader's own logs, for whoever does not hand one over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kvaudit.inquiries.statement import Span, Statement

MOST_ZONES = 8


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    text: str


def queries(statement: Statement) -> list[Query]:
    """One per kind of log store; empty where no danger zone with known lengths was open. Only numbers and times
    go in: nothing that anybody named."""
    zones = [span for span in statement.dangers if span.zone is not None][-MOST_ZONES:]
    if not zones:
        return []
    return [
        Query("SQL (PostgreSQL)", _sql(zones, "TIMESTAMPTZ '{}'", "count(*)")),
        Query("BigQuery", _sql(zones, "TIMESTAMP '{}'", "COUNT(*)", table="`project.dataset.requests`")),
        Query("Loki (LogQL)", _loki(zones)),
        Query("jq, over JSON lines", _jq(zones)),
    ]


def _sql(zones: Sequence[Span], moment: str, count: str, table: str = "requests") -> str:
    where = "\n   OR ".join(
        f"(time >= {moment.format(_iso(span.start))} AND time < {moment.format(_iso(span.end))}"
        f" AND prompt_tokens >= {span.zone[0]} AND prompt_tokens < {span.zone[1]})"
        for span in zones
        if span.zone
    )
    return (
        f"SELECT tenant, {count} AS requests, min(time) AS first, max(time) AS last\nFROM {table}\nWHERE {where}\n"
        "GROUP BY tenant ORDER BY requests DESC;"
    )


def _loki(zones: Sequence[Span]) -> str:
    lines = []
    for span in zones:
        if span.zone is None:
            continue
        seconds = max(1, int((span.end - span.start).total_seconds()))
        lines.append(
            f'# at {_iso(span.end)}\nsum by (tenant) (count_over_time({{app="gateway"}} | json'
            f" | prompt_tokens >= {span.zone[0]} | prompt_tokens < {span.zone[1]} [{seconds}s]))"
        )
    return "\n".join(lines)


def _jq(zones: Sequence[Span]) -> str:
    tests = " or ".join(
        f'(.time >= "{_iso(span.start)}" and .time < "{_iso(span.end)}"'
        f" and .prompt_tokens >= {span.zone[0]} and .prompt_tokens < {span.zone[1]})"
        for span in zones
        if span.zone
    )
    return f"jq -r 'select({tests}) | .tenant' requests.jsonl | sort | uniq -c | sort -rn"


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
