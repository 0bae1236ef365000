"""What the ledger proves of a run: that its results are those that were recorded, and that the record is intact.

The digest is computed again from the rows whenever the page is read; the chain is walked once a day
(`kvaudit.server.ledger.verify_job`), so a page says when that was and how far it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.evidence import run_proof
from kvaudit.server.audits.evidence.run_proof import ENDS
from kvaudit.server.audits.execution import run_verdict
from kvaudit.server.audits.models import PrunedEvidence, Result, Run, RunState
from kvaudit.server.ledger.models import Entry, Verification
from kvaudit.server.ledger.models.verifications import Outcome
from kvaudit.server.ledger.services import hash_of

TELL = "Do not rely on this run, and tell an administrator."


@dataclass(frozen=True, slots=True)
class Proof:
    """``verdict`` None = there is nothing to prove yet. ``sentences`` come in order, the digest's first."""

    verdict: Verdict | None
    word: str
    sentences: Sequence[str]
    entry: Entry | None = None
    verified_at: datetime | None = None

    @property
    def broken(self) -> bool:
        return self.verdict is Verdict.FAIL


def proof_of(run: Run, results: Sequence[Result]) -> Proof:
    """``results`` are those of every attempt. Two queries and one for evidence that is not prefetched; of a
    run whose evidence was pruned, one more."""
    if not run.ended:
        return Proof(None, "not yet", ["A run gets its entry in the ledger when it ends."])
    entry = Entry.objects.about(f"run:{run.pk}").filter(kind__in=ENDS).order_by("sequence").first()
    if entry is None:
        if run.state == RunState.MISSED:
            return Proof(None, "no entry", ["It was never carried out, so there are no results to prove."])
        return Proof(
            Verdict.INCONCLUSIVE,
            "no entry",
            [
                "The ledger has no entry of this run: nothing proves that its results are those that were recorded."
            ],
        )
    kept = [[each.kind, each.evidence_id, each.source, each.node_name] for each in run.kept_evidence.all()]
    as_recorded = run_proof.matches(run, results, kept, entry.digest)
    if not as_recorded and (pruned := PrunedEvidence.objects.filter(run=run).first()) is not None:
        kept += pruned.kept
        as_recorded = run_proof.matches(run, results, kept, entry.digest)
    if not as_recorded:
        found = run_verdict.whole_digest(run, results, kept)
        return Proof(
            Verdict.FAIL,
            "results changed",
            [
                f"The results of this run are not those that were recorded: entry {entry.sequence:,} holds another "
                f"digest than they have now ({found}). {TELL}"
            ],
            entry,
        )
    same = "Its results still have the digest that was recorded."
    if entry.hash != hash_of(entry):
        changed = f"But entry {entry.sequence:,} itself was altered: its hash is wrong. {TELL}"
        return Proof(Verdict.FAIL, "entry changed", [same, changed], entry)
    verdict, word, sentence, at = _chain(entry, Verification.objects.decided().first())
    return Proof(verdict, word, [same, sentence], entry, at)


def _chain(entry: Entry, last: Verification | None) -> tuple[Verdict, str, str, datetime | None]:
    """How far the chain around the entry is known to be in order."""
    if last is None or last.finished_at is None:
        return Verdict.INCONCLUSIVE, "chain not verified", "Nobody has verified the chain yet.", None
    at = last.finished_at
    if last.outcome == Outcome.BROKEN:
        before = "before" if entry.sequence <= last.entries else "at or after"
        return (
            Verdict.FAIL,
            "chain broken",
            f"But the chain is broken, and this entry lies {before} the break. {last.sentence} {TELL}",
            at,
        )
    if entry.sequence > last.entries:
        return (
            Verdict.INCONCLUSIVE,
            "not verified yet",
            f"The chain was last verified before this entry was written, up to entry {last.entries:,}.",
            at,
        )
    return Verdict.PASS, "proved", f"Chained, and the chain was verified up to entry {last.entries:,}.", at
