"""Tells whether a run is what the ledger recorded of it, by its digest, computed again from the rows as they
are now.

Pages, the gates and the verification of the ledger all ask here. Four queries for any number of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kvaudit.server.audits.execution import run_verdict
from kvaudit.server.audits.models import PrunedEvidence, Result, Run, RunEvidence, RunState
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.services import hash_of

ENDS = (f"run.{RunState.FINISHED}", f"run.{RunState.CANCELLED}")
RECORDED = "result.recorded"
"""One result of a run that has not ended, on which state rests already."""
PRUNED = "evidence.pruned"

Kept = Sequence[str]
"""Kind, SHA-256, source, node name of one piece of evidence."""


def subject_of(result: Result) -> str:
    """Of the entry of one result of a run that has not ended."""
    return f"run:{result.run_id} attempt:{result.attempt} check:{result.check_id}"


def kept_of(runs: Iterable[int]) -> dict[int, list[Kept]]:
    """Run id -> the evidence that it keeps now."""
    found: dict[int, list[Kept]] = {pk: [] for pk in runs}
    rows = RunEvidence.objects.filter(run__in=found)
    for run_id, *kept in rows.values_list("run_id", "kind", "evidence_id", "source", "node_name"):
        found[run_id].append(kept)
    return found


def entries_of(runs: Iterable[int]) -> dict[int, Entry]:
    """Run id -> the first entry of its end: whoever writes another one later changes nothing."""
    rows = Entry.objects.filter(subject__in=[f"run:{pk}" for pk in runs], kind__in=ENDS)
    return {int(entry.subject.removeprefix("run:")): entry for entry in rows.order_by("-sequence")}


def pruned_digest(row: PrunedEvidence) -> str:
    """What its entry in the ledger holds."""
    return digest_of([row.run_id, row.digest, row.kept])


def matches(run: Run, results: Iterable[Result], kept: Iterable[Kept], recorded: str) -> bool:
    """Whether the run comes to this digest, by the rule of today or by that of the first release."""
    rows = list(results)
    return recorded in (
        run_verdict.whole_digest(run, rows, kept),
        run_verdict.digest(run_verdict.identity(run), rows),
    )


def unproved(runs: Iterable[Run], entries: Mapping[int, Entry] | None = None) -> dict[int, str]:
    """Run id -> a sentence that says why the ledger does not vouch for it; the others are as recorded. ``entries``
    are those of the runs' ends, where the caller has them."""
    wanted = {run.pk: run for run in runs}
    if not wanted:
        return {}
    known = entries_of(wanted) if entries is None else entries
    results: dict[int, list[Result]] = defaultdict(list)
    for result in Result.objects.filter(run__in=wanted):
        results[result.run_id].append(result)
    kept = kept_of(wanted)
    pruned = {row.run_id: row for row in PrunedEvidence.objects.filter(run__in=wanted)}
    found = {}
    for pk, run in wanted.items():
        before = {tuple(each) for each in (*kept[pk], *(pruned[pk].kept if pk in pruned else ()))}
        if problem := _problem(run, results[pk], before, known.get(pk)):
            found[pk] = problem
    going = _unrecorded({pk: results[pk] for pk, run in wanted.items() if not run.ended})
    # One that ended while we looked has its own entry now.
    ended = (
        Run.objects.filter(pk__in=going).exclude(state__in=(RunState.QUEUED, RunState.RUNNING))
        if going
        else ()
    )
    after = {run.pk for run in ended}
    return found | {pk: sentence for pk, sentence in going.items() if pk not in after} | unproved(ended)


def _problem(run: Run, results: Sequence[Result], kept: Iterable[Kept], entry: Entry | None) -> str:
    if not run.ended:
        return ""
    if entry is None:
        missed = run.state == RunState.MISSED and not results
        return "" if missed else f"The ledger has no entry of the end of run {run.pk}."
    if entry.kind != f"run.{run.state}":
        return f"Run {run.pk} says {run.state}, and entry {entry.sequence:,} recorded {entry.kind}."
    if not matches(run, results, kept, entry.digest):
        return (
            f"Run {run.pk} is not what entry {entry.sequence:,} recorded: the run, its results or what it kept were "
            "changed since."
        )
    return "" if entry.hash == hash_of(entry) else f"Entry {entry.sequence:,} was altered: its hash is wrong."


def _unrecorded(going: Mapping[int, Sequence[Result]]) -> dict[int, str]:
    """Of runs that have not ended: results that are not what was recorded when they came."""
    results = {subject_of(row): row for rows in going.values() for row in rows}
    if not results:
        return {}
    entries = Entry.objects.filter(subject__in=results, kind=RECORDED).order_by("-sequence")
    recorded = dict(entries.values_list("subject", "digest"))
    return {
        row.run_id: (
            f"Result {row.pk} of run {row.run_id} ({row.check_id}) is not what the ledger recorded when it came."
        )
        for subject, row in results.items()
        if recorded.get(subject) != run_verdict.result_digest(row)
    }
