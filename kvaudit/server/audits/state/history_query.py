"""Searches the whole history of results, filtered, newest first, in slices of bounded cost.

A filter that matches nothing must not scan ten million rows while somebody waits. Each request looks at one
slice at most (`SLICE` rows, fewer when the time runs out), says how far back it searched, and the reader goes
on from there. Nothing is counted. Ids grow with time, so that a page is a walk down the primary key, or down
the index of one deployment.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state.builds import Builds

SLICE = 100_000
"""Rows that one request looks at, at most."""

PATIENCE = 0.04
"""Seconds of searching after which the slice ends early."""

FIRST_STEP = 2_000
LARGEST_STEP = 50_000

PAGE = 50

LATE = timedelta(hours=6)
"""Results are stored after they were observed, by as much as a long run lasts with its second attempt; ids
follow the time of storing."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for. ``deployments`` holds ids of deployments that the reader may see; None = all.

    ``actors`` are ids of users; ``since`` is inclusive, ``until`` exclusive.
    """

    deployments: tuple[int, ...] | None = None
    check: str = ""
    verdict: str = ""
    trigger: str = ""
    actors: tuple[int, ...] | None = None
    engine: str = ""
    version: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def hopeless(self) -> bool:
        """Whether a filter names something that does not exist, so that nothing can match."""
        return self.deployments == () or self.actors == ()


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One page. ``older`` is the key to go on below (None at the end of history); ``searched_to`` is set where
    the slice ended before the page was full."""

    rows: Sequence[Result]
    builds: Builds
    older: int | None = None
    searched_to: datetime | None = None
    looked_at: int = 0


@dataclass(slots=True)
class Condition:
    """Clauses over ``r`` (results) and over ``run``, with their parameters."""

    of_result: list[str] = field(default_factory=list)
    of_run: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        return _all([*self.of_result, *self.of_run])


def _all(clauses: Sequence[str]) -> str:
    return " AND ".join(clauses) or "TRUE"


def condition(asked: Question, builds: Builds | None) -> Condition:
    """``builds`` of the deployments in question, needed where engine or version is asked for."""
    made = Condition()

    def add(clause: str, **values: Any) -> None:
        (made.of_run if clause.startswith("run.") else made.of_result).append(clause)
        made.values.update(values)

    if asked.deployments is not None:
        if len(asked.deployments) == 1:
            add("r.deployment_id = %(deployment)s", deployment=asked.deployments[0])
        else:
            add("r.deployment_id = ANY(%(deployments)s::bigint[])", deployments=list(asked.deployments))
    if asked.check:
        add("r.check_id = %(check)s", check=asked.check)
    if asked.verdict:
        add("r.verdict = %(verdict)s", verdict=asked.verdict)
    if asked.since is not None:
        add("r.observed_at >= %(since)s", since=asked.since)
    if asked.until is not None:
        add("r.observed_at < %(until)s", until=asked.until)
    if asked.engine or asked.version:
        assert builds is not None
        spans = builds.running(asked.engine, asked.version)
        add(
            "EXISTS (SELECT 1 FROM unnest(%(ran)s::bigint[], %(ran_from)s::timestamptz[], %(ran_to)s::timestamptz[])"
            " AS ran(deployment, start, stop)"
            " WHERE ran.deployment = r.deployment_id AND r.observed_at >= ran.start AND r.observed_at < ran.stop)",
            ran=[deployment for deployment, _, _ in spans],
            ran_from=[start for _, start, _ in spans],
            ran_to=[end for _, _, end in spans],
        )
    if asked.trigger:
        add("run.trigger = %(trigger)s", trigger=asked.trigger)
    if asked.actors is not None:
        add("run.actor_id = ANY(%(actors)s::bigint[])", actors=list(asked.actors))
    return made


def page_of(asked: Question, *, below: int | None = None, size: int = PAGE) -> HistoryPage:
    """Results that match, newest first, below the key ``below``."""
    if asked.hopeless:
        return HistoryPage([], Builds([]))
    builds = Builds.of(asked.deployments) if asked.engine or asked.version else None
    wanted = condition(asked, builds)
    lowest, top = bounds(asked, below)
    ids: list[int] = []
    looked, step, began = 0, FIRST_STEP, time.monotonic()
    floor = top
    while floor > lowest and looked < SLICE and len(ids) <= size:
        ceiling, floor = floor, _floor(asked, floor, lowest, min(step, SLICE - looked))
        ids += _matching(wanted, floor, ceiling, size + 1 - len(ids))
        looked += step
        spent = time.monotonic() - began
        left = PATIENCE - spent
        if left <= 0:
            break
        # What the rows so far have cost foretells what the rest of the time is good for.
        step = max(FIRST_STEP, min(LARGEST_STEP, int(looked / max(spent, 1e-6) * left * 0.8)))
    rows = _rows(ids[:size])
    if len(ids) > size:
        older, searched_to = ids[size - 1], None
    elif floor > lowest:
        older, searched_to = floor, _observed(floor)
    else:
        older, searched_to = None, None
    shown = builds or Builds.of({row.deployment_id for row in rows})
    return HistoryPage(rows, shown, older, searched_to, min(looked, SLICE))


def bounds(asked: Question, below: int | None = None) -> tuple[int, int]:
    """Keys between which everything asked for lies: lowest (inclusive) and top (exclusive)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0), coalesce(max(id), -1) + 1 FROM audits_result")
        lowest, top = cursor.fetchone()
        if asked.until is not None:
            top = min(top, _first_key(cursor, lowest, top, asked.until + LATE))
        if asked.since is not None:
            lowest = max(lowest, _first_key(cursor, lowest, top, asked.since - LATE))
    return lowest, top if below is None else min(top, below)


_BISECT = """
WITH RECURSIVE span(low, high) AS (
  SELECT %(low)s::bigint, %(high)s::bigint
  UNION ALL
  SELECT CASE WHEN probe.early THEN span.low + (span.high - span.low) / 2 + 1 ELSE span.low END,
         CASE WHEN probe.early THEN span.high ELSE span.low + (span.high - span.low) / 2 END
  FROM span, LATERAL (
    SELECT coalesce((SELECT r.observed_at < %(moment)s FROM audits_result r
                     WHERE r.id >= span.low + (span.high - span.low) / 2 ORDER BY r.id LIMIT 1), FALSE) AS early
  ) AS probe
  WHERE span.low < span.high
)
SELECT low FROM span WHERE low >= high LIMIT 1
"""


def _first_key(cursor: Any, low: int, high: int, moment: datetime) -> int:
    """The first key of [low, high] whose result was observed at ``moment`` or later. Ids are in order of time
    but for a few hours, which callers allow for (`LATE`)."""
    cursor.execute(_BISECT, {"low": low, "high": max(low, high), "moment": moment})
    found = cursor.fetchone()
    return high if found is None else int(found[0])


_OWN_ROWS = "SELECT id FROM audits_result WHERE {clauses} AND id < %(ceiling)s ORDER BY id DESC OFFSET %(skip)s LIMIT 1"


def _floor(asked: Question, ceiling: int, lowest: int, step: int) -> int:
    """The key down to which the next ``step`` rows reach. Of a single deployment its own rows count: of the check
    that is asked for, or else of the verdict where it is not a pass. An index holds each of the three, in order."""
    if asked.deployments is None or len(asked.deployments) != 1:
        return max(lowest, ceiling - step)
    named: dict[str, Any] = {"deployment_id": asked.deployments[0]}
    if asked.check:
        named["check_id"] = asked.check
    elif asked.verdict not in ("", Verdict.PASS):
        named["verdict"] = asked.verdict
    sql = _OWN_ROWS.format(clauses=_all([f"{column} = %({column})s" for column in named]))
    with connection.cursor() as cursor:
        cursor.execute(sql, {**named, "ceiling": ceiling, "skip": step - 1})
        found = cursor.fetchone()
    return lowest if found is None else max(lowest, found[0])


_SLICE = "SELECT {columns} FROM audits_result r WHERE r.id >= %(floor)s AND r.id < %(ceiling)s AND {clauses}"

_OF_RUNS = """
WITH slice AS MATERIALIZED ({slice})
SELECT slice.id FROM slice JOIN audits_run run ON run.id = slice.run_id
WHERE run.id BETWEEN (SELECT min(run_id) FROM slice) AND (SELECT max(run_id) FROM slice) AND {clauses}
ORDER BY slice.id DESC LIMIT %(most)s
"""
"""The slice is read first, and of the runs its own stretch: a planner that hopes for an early hit in another order
walks all of history, and all runs ever for a trigger that none had."""


def _matching(wanted: Condition, floor: int, ceiling: int, most: int) -> list[int]:
    clauses = _all(wanted.of_result)
    if wanted.of_run:
        rows = _SLICE.format(columns="r.id, r.run_id", clauses=clauses)
        sql = _OF_RUNS.format(slice=rows, clauses=_all(wanted.of_run))
    else:
        sql = _SLICE.format(columns="r.id", clauses=clauses) + " ORDER BY r.id DESC LIMIT %(most)s"
    with connection.cursor() as cursor:
        cursor.execute(sql, {**wanted.values, "floor": floor, "ceiling": ceiling, "most": most})
        return [row[0] for row in cursor.fetchall()]


def _rows(ids: Sequence[int]) -> list[Result]:
    found = (
        Result.objects.filter(pk__in=ids)
        .select_related("deployment__team", "run__plan", "run__actor")
        .defer("measures", "evidence", "next_step", "does_not_prove", "run__progress", "run__summary")
    )
    return sorted(found, key=lambda row: -row.pk)


def _observed(key: int) -> datetime | None:
    return Result.objects.filter(pk__gte=key).order_by("pk").values_list("observed_at", flat=True).first()
