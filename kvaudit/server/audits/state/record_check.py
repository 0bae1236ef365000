"""Tells whether states follow from results, and runs from the ledger: asked by the gates of one deployment, by
the verification of the ledger of all.

What must hold of the intervals of a check, oldest first: each begins where the one before was closed (or before: an end
may turn out to be earlier), the last one is open, each is what its result says, a pass lasts no longer than that was
observed and holds no longer than it may, a fail is not cut short, and no later result that counts says otherwise. A
database's question each; none loads history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db import connection

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.evidence import run_proof
from kvaudit.server.audits.execution import run_verdict
from kvaudit.server.audits.models import CheckState, PrunedEvidence, Result, Run, RunState
from kvaudit.server.audits.state import standing
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger import record_check
from kvaudit.server.ledger.models import Entry

MOST_CANDIDATES = 1_000
"""Later results that say otherwise and may not count (of cancelled runs, or beside an earlier attempt's fail)."""

_ONE = "AND state.deployment_id = %(deployment)s"

# What state follows: all runs together where they accumulate (`standing.of`), else the result itself.
_TOGETHER = """CASE WHEN result.check_id = ANY(%(accumulating)s) AND result.verdict IN ('pass', 'inconclusive')
            THEN result.measures #>> '{accumulated,verdict}' END"""
_SAID = "coalesce({together}, result.verdict)"

_CONTIGUOUS = """
    SELECT id, check_id, deployment_id, closed_at, following FROM (
        SELECT state.id, state.check_id, state.deployment_id, state.closed_at,
            lead(state.since) OVER (
                PARTITION BY state.deployment_id, state.check_id ORDER BY state.since, state.id) AS following
        FROM audits_checkstate state
        WHERE state.node_id IS NULL AND (state.closed_at IS NULL OR state.closed_at > state.since) {one}
    ) AS interval
    WHERE closed_at < following OR (closed_at IS NULL) <> (following IS NULL) ORDER BY id LIMIT 1
"""

# A confirmation by a plan brings the plan's interval; without one the interval before stands. A fail of a moment that
# had not come (a later entry is of an earlier time, and the database alone dates entries) is cut short by what follows.
_AS_ITS_RESULT = """
    SELECT state.id, result.id FROM audits_checkstate state
    JOIN audits_result result ON result.id = state.result_id
    JOIN audits_run run ON run.id = result.run_id
    LEFT JOIN audits_plan plan ON plan.id = run.plan_id
    WHERE state.node_id IS NULL {one} AND (
        (result.deployment_id, result.check_id, result.run_id, {said}, result.warn,
            CASE WHEN {together} IS NULL THEN result.severity WHEN {together} = 'fail' THEN 'critical' ELSE '' END,
            CASE WHEN {together} IS NULL THEN result.summary ELSE result.measures #>> '{accumulated,summary}' END)
        IS DISTINCT FROM
        (state.deployment_id, state.check_id, state.run_id, state.verdict, state.warn, state.severity,
            state.summary)
        OR plan."interval" <> state."interval"
        OR (state.verdict <> 'fail' AND state.last_confirmed > result.observed_at)
        OR (state.verdict <> 'fail' AND state.closed_at IS NULL AND state.expires_at > state.last_confirmed
            + greatest(interval '7 days', 1.5 * state."interval" * interval '1 second'))
        OR (state.verdict = 'fail' AND NOT EXISTS (
            SELECT 1 FROM audits_checkstate covering
            WHERE covering.deployment_id = state.deployment_id AND covering.check_id = state.check_id
                AND covering.node_id IS NULL AND covering.verdict = 'fail' AND covering.since <= result.observed_at
                AND (covering.closed_at IS NULL OR covering.closed_at >= result.observed_at
                    AND covering.last_confirmed >= result.observed_at))
            AND NOT EXISTS (
                SELECT 1 FROM ledger_entry ended JOIN ledger_entry later ON later.sequence >= ended.sequence
                WHERE ended.subject = 'run:' || result.run_id AND ended.kind IN ('run.finished', 'run.cancelled')
                    AND later.at < result.observed_at - interval '5 seconds')))
    ORDER BY state.id LIMIT 1
"""

# Of a closed interval: results that came before the one that closed it. Later ones were too late to count.
_OTHERWISE = """
    SELECT state.id, result.id FROM audits_checkstate state
    LEFT JOIN LATERAL (
        SELECT min(closing.id) AS id FROM audits_result closing
        WHERE closing.deployment_id = state.deployment_id AND closing.check_id = state.check_id
            AND closing.id > state.result_id AND closing.observed_at = state.closed_at
    ) AS closing ON state.closed_at IS NOT NULL
    JOIN audits_result result ON result.deployment_id = state.deployment_id AND result.check_id = state.check_id
        AND result.id > state.result_id AND (state.closed_at IS NULL OR result.id < closing.id)
    WHERE state.node_id IS NULL {one} AND result.observed_at > state.last_confirmed
        AND (state.closed_at IS NULL OR result.observed_at < state.closed_at)
        AND {said} <> state.verdict
    ORDER BY state.id, result.id LIMIT %(most)s
"""

_ENDED_UNRECORDED = """
    SELECT run.id FROM audits_run run
    WHERE run.state IN ('finished', 'cancelled') AND NOT EXISTS (
        SELECT 1 FROM ledger_entry entry
        WHERE entry.subject = 'run:' || run.id AND entry.kind IN ('run.finished', 'run.cancelled'))
    ORDER BY run.id LIMIT 1
"""


def doubts(deployment: Deployment) -> list[str]:
    """Sentences that say why the record of a deployment's state cannot be relied on; none where it is in order. A fixed
    number of queries: eight."""
    open_now = CheckState.objects.filter(deployment=deployment, closed_at=None)
    runs = Run.objects.filter(pk__in=open_now.values("run"))
    found = list(run_proof.unproved(runs).values())
    return [
        *found,
        *filter(None, (question(deployment.pk) for question in (_contiguous, _as_its_result, _otherwise))),
    ]


def contradicted() -> str:
    """The first interval of any deployment that does not follow, as a sentence; "" for none."""
    return next(filter(None, (question(None) for question in (_contiguous, _as_its_result, _otherwise))), "")


def unrecorded() -> str:
    """The first run that has ended and has no entry, or the first result of a running one that is not as recorded."""
    for (pk,) in _rows(_ENDED_UNRECORDED):
        return f"Run {pk} has ended, and the ledger has no entry of its end."
    going = Run.objects.filter(state__in=(RunState.QUEUED, RunState.RUNNING), attempt__gt=0, kind="active")
    resting = going.filter(pk__in=CheckState.objects.filter(closed_at=None).values("run"))
    return next(iter(run_proof.unproved(resting).values()), "")


def runs_differing(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    """Of entries of ends of runs, those whose run is not what they recorded."""
    first = run_proof.entries_of(_number(entry) for entry in entries)
    runs = Run.objects.in_bulk(first)
    problems = run_proof.unproved(runs.values(), first)
    for entry in entries:
        pk = _number(entry)
        if entry.subject != f"run:{pk}":
            yield entry, f"Entry {entry.sequence} records the end of a run that it does not name."
        elif entry.sequence != first[pk].sequence:
            yield (
                entry,
                f"Entry {entry.sequence} records the end of run {pk} a second time: one of the two is forged.",
            )
        elif pk in problems:
            yield entry, problems[pk]
        elif pk not in runs and entry.digest:
            yield entry, f"Run {pk}, whose end entry {entry.sequence} recorded, is gone."


def pruned_differing(entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    """Of entries that say that evidence was dropped, those whose list is not what they recorded."""
    by_entry = {entry.sequence: _number(entry) for entry in entries}
    rows = {row.run_id: row for row in PrunedEvidence.objects.filter(run__in=set(by_entry.values()))}
    for entry in entries:
        row = rows.get(by_entry[entry.sequence])
        if row is None or run_proof.pruned_digest(row) != entry.digest:
            yield (
                entry,
                (
                    f"What entry {entry.sequence} recorded of the evidence that was dropped of run "
                    f"{by_entry[entry.sequence]} is gone or was changed."
                ),
            )


def pruned() -> str:
    """How much evidence is gone by rule, as a sentence."""
    count = PrunedEvidence.objects.count()
    runs = "1 run was" if count == 1 else f"{count:,} runs was"
    return f"The evidence of {runs} pruned after its time; its digests are kept." if count else ""


def register() -> None:
    """Once, when the app starts."""
    record_check.derives(*run_proof.ENDS, by=runs_differing)
    record_check.derives(run_proof.PRUNED, by=pruned_differing)
    record_check.follows(unrecorded)
    record_check.follows(contradicted)
    record_check.remarks(pruned)


def _contiguous(deployment: int | None) -> str:
    for pk, *_, following in _rows(_CONTIGUOUS, deployment):
        state = _state(pk)
        if following is None:
            return f"{_named(state)} was closed, and nothing follows it."
        return f"{_named(state)} and the one after it do not join: one of the two was put in or changed."
    return ""


def _as_its_result(deployment: int | None) -> str:
    for pk, result in _rows(_AS_ITS_RESULT, deployment):
        state = _state(pk)
        return (
            f"{_named(state)} is not what result {result} of run {state.run_id} says, on which it rests, or lasts "
            "longer than it may."
        )
    return ""


def _otherwise(deployment: int | None) -> str:
    candidates = _rows(_OTHERWISE, deployment)
    results = Result.objects.select_related("run").in_bulk([result for _, result in candidates])
    counts = counting(results.values())
    for pk, result in candidates:
        if result in counts:
            return (
                f"{_named(_state(pk))} says otherwise than result {result} of run {results[result].run_id}, which came "
                f"later and says {standing.of(results[result]).verdict}."
            )
    return ""


def counting(results: Iterable[Result]) -> set[int]:
    """Those that bear on state: a fail always, others of a run that was carried through, and the one that counts among
    the attempts of that run."""
    wanted = {row.pk: row for row in results}
    beside = Result.objects.filter(run__in={row.run_id for row in wanted.values()})
    by_run: dict[int, list[Result]] = {}
    for row in beside:
        by_run.setdefault(row.run_id, []).append(row)
    return {
        pk
        for pk, row in wanted.items()
        if row.verdict == Verdict.FAIL.value
        or (
            row.run.state == RunState.FINISHED
            and getattr(run_verdict.counting(by_run[row.run_id])[row.check_id], "pk", None) == pk
        )
    }


def _rows(query: str, deployment: int | None = None) -> list[tuple[int, ...]]:
    one = "" if deployment is None else _ONE
    with connection.cursor() as cursor:
        cursor.execute(
            query.replace("{said}", _SAID).replace("{together}", _TOGETHER).replace("{one}", one),
            _asked(deployment),
        )
        rows: list[tuple[int, ...]] = cursor.fetchall()
    return rows


def _asked(deployment: int | None) -> dict[str, Any]:
    return {
        "deployment": deployment,
        "most": MOST_CANDIDATES,
        "accumulating": list(standing.ACCUMULATING),
    }


def _state(pk: int) -> CheckState:
    return CheckState.objects.select_related("deployment").get(pk=pk)


def _named(state: CheckState) -> str:
    since = f"{state.since:%Y-%m-%d %H:%M:%S}"
    return f"The state {state.verdict} of {state.check_id} of {state.deployment.slug} since {since} UTC"


def _number(entry: Entry) -> int:
    digits = entry.subject.removeprefix("run:").partition(" ")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
