"""The entries that a worker leaves in the ledger, for runs that a test made by hand."""

from __future__ import annotations

from kvaudit.server.accounts.actors import Actor
from kvaudit.server.audits.evidence import run_proof
from kvaudit.server.audits.execution import run_verdict
from kvaudit.server.audits.models import Run
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.services import record


def recorded(run: Run, actor: Actor = "system:worker") -> Entry:
    """The end of this run, as its rows are now."""
    run.refresh_from_db()
    digest = run_verdict.whole_digest(run, run.results.all(), run_proof.kept_of([run.pk])[run.pk])
    return record(actor=actor, kind=f"run.{run.state}", subject=f"run:{run.pk}", digest=digest)
