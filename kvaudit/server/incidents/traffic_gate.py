"""Decides whether a node of this deployment may take traffic, as far as history knows. Composed from the apps
below, stored nowhere; the API and the deployment's page give the same answer.

The caller has read the running process; this adds what a single reading cannot show: that the gate was not run since
the last capacity change, that a check of the last days found a leak, that the build was not shown at the boundary, that
a declared edge limit was never seen refusing, that the deployment is under quarantine, that the record of all this was
changed. `SOURCES` is the list of such questions; one more is one more function in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor import checks
from kvaudit.auditor.checks.contract import History
from kvaudit.auditor.verdict import WORST_FIRST, Verdict, roll_up
from kvaudit.server.audits.models import CheckState
from kvaudit.server.audits.state import record_check, standing
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus
from kvaudit.server.audits.state.history import history_for
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents.models import Quarantine
from kvaudit.server.incidents.record_check import unreleased

NOT_ASKED = (*checks.where("read_at_gate"), *checks.where("planned_only"))
"""What the gate reads itself, now: an older verdict adds nothing; and what is no part of a gate unless asked for
(checks.md 11)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that history says; ``check`` is a check's id or the name of the source."""

    check: str
    verdict: Verdict
    summary: str


@dataclass(frozen=True, slots=True)
class Past:
    """What the sources look at."""

    deployment: Deployment
    status: DeploymentStatus
    history: History


@dataclass(frozen=True, slots=True)
class Answer:
    """The roll-up and every reason, worst first."""

    deployment: str
    verdict: Verdict
    summary: str
    reasons: tuple[Reason, ...]
    edge_limit: int | None  # tokens, as declared here: the asker may have another one in mind
    edge_limit_seen_refusing: bool


Source = Callable[[Past], Iterable[Reason]]


def answer(deployment: Deployment, status: DeploymentStatus | None = None) -> Answer:
    """Ask every source about this deployment; ``status`` is how it stands, where the caller knows already."""
    past = past_of(deployment, status)
    reasons = sorted((reason for source in SOURCES for reason in source(past)), key=_rank)
    verdict = roll_up([reason.verdict for reason in reasons])
    return Answer(
        deployment.slug,
        verdict,
        _sentence(verdict, reasons),
        tuple(reasons),
        deployment.edge_limit,
        past.history.edge_limit_seen_refusing,
    )


def past_of(deployment: Deployment, status: DeploymentStatus | None = None) -> Past:
    return Past(deployment, status or status_of(deployment), history_for(deployment))


def drift(past: Past) -> Iterable[Reason]:
    """Whether the gate set has completed since the last capacity change.

    A change seen after drift was last judged counts at once.
    """
    changed, completed = past.history.fingerprint_changed_at, past.history.gate_completed_at
    if changed is not None and (completed is None or completed < changed):
        since = changed.isoformat(timespec="minutes")
        yield Reason(
            "drift",
            Verdict.FAIL,
            f"the configuration changed at {since} and the gate set has not completed since",
        )
        return
    now = past.status.checks.get("drift")
    if now is None:
        yield Reason("drift", Verdict.INCONCLUSIVE, "drift has never been audited")
    else:
        yield _reason(now)


def findings(past: Past) -> Iterable[Reason]:
    """Checks that said *fail* last, while that holds; once expired they are inconclusive until run
    again, never forgotten."""
    for now in (*past.status.checks.values(), *past.status.nodes):
        if now.said is Verdict.FAIL and now.check not in (*NOT_ASKED, "drift"):
            yield _reason(now)


def unrefuted(past: Past) -> Iterable[Reason]:
    """Checks that failed and have learnt nothing since: a test that could not be done takes nothing back."""
    rows: Any = CheckState.objects.unrefuted().filter(deployment=past.deployment).order_by("check_id")
    rows = rows.exclude(check_id__in=(*NOT_ASKED, "drift"))  # Any: mypy's plugin knows no annotations
    for check, summary in rows.values_list("check_id", "failed_summary"):
        yield Reason(check, Verdict.INCONCLUSIVE, f"it failed and has shown nothing else since: {summary}")


def qualified(past: Past) -> Iterable[Reason]:
    """Whether the build that serves was shown at the boundary, where evidence of it is kept. How fresh production's
    nights are is none of the gate's: a newcomer has none."""
    for check in standing.ACCUMULATING:
        now = past.status.checks.get(check)
        told = standing.told(now.result_id) if now is not None else None
        if told is None or now is None or now.said is Verdict.FAIL:
            continue
        if now.expired:
            yield _reason(now)
            continue
        shown, said = standing.qualified(told)
        yield Reason(check, Verdict.PASS if shown else Verdict.INCONCLUSIVE, said)


def edge_limit(past: Past) -> Iterable[Reason]:
    """A declared edge limit stands for the context only once it was seen refusing."""
    declared = past.deployment.edge_limit
    if declared is None:
        return
    if past.history.edge_limit_seen_refusing:
        yield Reason("edge limit", Verdict.PASS, f"the edge limit of {declared:,} tokens was seen refusing")
    else:
        yield Reason(
            "edge limit",
            Verdict.INCONCLUSIVE,
            f"the edge limit of {declared:,} tokens is declared but was never seen refusing",
        )


def quarantine(past: Past) -> Iterable[Reason]:
    """A quarantined deployment takes no traffic, whatever else holds, until the restore gate lets it back."""
    held = Quarantine.objects.of(past.deployment).first()
    if held is not None:
        since = held.valid_from.isoformat(timespec="minutes")
        of = f" for incident {held.incident_id}" if held.incident_id else ""
        yield Reason("quarantine", Verdict.FAIL, f"under quarantine since {since}{of}: {held.reason}")


def record(past: Past) -> Iterable[Reason]:
    """Whether what the others look at is what was recorded: rows that were changed open nothing."""
    # Twice: something may have been recorded between two of the queries.
    for doubt in _doubts(past.deployment) and _doubts(past.deployment):
        yield Reason("record", Verdict.ERROR, doubt)


def _doubts(deployment: Deployment) -> list[str]:
    return [*record_check.doubts(deployment), *unreleased(deployment)]


SOURCES: tuple[Source, ...] = (quarantine, drift, findings, unrefuted, qualified, edge_limit, record)


def _rank(reason: Reason) -> tuple[int, str]:
    return WORST_FIRST.index(reason.verdict), reason.check


def _reason(now: CheckNow) -> Reason:
    summary = now.summary
    if now.expired:
        summary = f"expired ({now.expired_by}); it said {now.said}: {summary}"
    return Reason(now.check, now.verdict, summary)


def _sentence(verdict: Verdict, reasons: list[Reason]) -> str:
    """One sentence: the reasons that decide, or what was looked at."""
    if verdict is Verdict.PASS:
        return "History holds nothing against this deployment: no capacity change without a gate, no failing check."
    deciding = [reason for reason in reasons if reason.verdict is verdict]
    told = "; ".join(f"{reason.check}: {reason.summary.rstrip('.')}" for reason in deciding)
    return f"History says {verdict}: {told}."
