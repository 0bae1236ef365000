"""May a node of this deployment take traffic? What the gate would be told, and the line that asks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import WORST_FIRST, Verdict, roll_up
from kvaudit.server.audits.state.deployment_status import DeploymentStatus
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.audits.state.tiers import Assessment
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import traffic_gate
from kvaudit.server.incidents.assessments import assessment
from kvaudit.server.web.kit.parts.reproduce import Reproduction, gate_line

READ_BY_THE_GATE = checks.where("read_at_gate")


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that opens or closes the gate. ``read_at``, ``run_id``: of the reading that says so, where
    it is a check's."""

    what: str
    verdict: Verdict
    summary: str
    read_at: datetime | None = None
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class GatePage:
    verdict: Verdict
    sentence: str
    reasons: Sequence[Reason]  # worst first
    status: Assessment
    ask: Reproduction


_SENTENCES = {
    Verdict.PASS: "Yes, by what was last read: the gate is open.",
    Verdict.FAIL: "No: the gate is closed.",
    Verdict.INCONCLUSIVE: "Not known, so no: the gate opens on a pass alone.",
    Verdict.ERROR: "Not known, so no: something could not be read.",
}


def gate_page(deployment: Deployment, server: str) -> GatePage:
    """History's answer and the last readings of what the gate itself reads; ``server`` is this address."""
    status = status_of(deployment)
    reasons = [_reading(status, check) for check in READ_BY_THE_GATE]
    reasons += [_past(reason, status) for reason in traffic_gate.answer(deployment, status).reasons]
    reasons.sort(key=lambda reason: (WORST_FIRST.index(reason.verdict), reason.what))
    verdict = roll_up([reason.verdict for reason in reasons])
    said = assessment(deployment, status)
    return GatePage(verdict, _SENTENCES[verdict], reasons, said, gate_line(deployment, server))


def _reading(status: DeploymentStatus, check: str) -> Reason:
    now = status.checks[check]
    summary = f"expired ({now.expired_by}): {now.summary}" if now.expired else now.summary
    return Reason(check, now.verdict, summary, now.last_confirmed, now.run_id)


def _past(reason: traffic_gate.Reason, status: DeploymentStatus) -> Reason:
    now = status.checks.get(reason.check)
    at, run = (now.last_confirmed, now.run_id) if now is not None else (None, None)
    return Reason(reason.check, reason.verdict, reason.summary, at, run)
