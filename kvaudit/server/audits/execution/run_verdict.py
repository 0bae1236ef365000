"""Computes what a run comes to: the results that count, its verdict and sentence, and its digest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kvaudit.auditor.verdict import Verdict, roll_up
from kvaudit.server.ledger.chain import digest_of


class Concluded(Protocol):
    """A `Result` row, saved or not."""

    attempt: int
    check_id: str
    verdict: str
    warn: bool
    summary: str


def counting(results: Iterable[Concluded]) -> dict[str, Concluded]:
    """Check -> the result that counts: a fail of any attempt stands, else the latest attempt's."""
    chosen: dict[str, Concluded] = {}
    for result in sorted(results, key=lambda each: each.attempt):
        earlier = chosen.get(result.check_id)
        if earlier is None or Verdict.parse(earlier.verdict) is not Verdict.FAIL:
            chosen[result.check_id] = result
    return chosen


def verdict_of(checks: Sequence[str], results: Iterable[Concluded]) -> Verdict:
    """The roll-up over the planned checks; one without a result is missing, and never a pass."""
    counted = counting(results)
    missing = any(check not in counted for check in checks)
    return roll_up((concluded.verdict for concluded in counted.values()), missing=missing)


def sentence(checks: Sequence[str], results: Iterable[Concluded], verdict: Verdict) -> str:
    """One sentence for lists: the first check that decides the verdict, or that all passed."""
    counted = counting(results)
    if verdict is Verdict.PASS:
        warned = [check for check in checks if counted[check].warn]
        return f"{', '.join(checks)}: pass" + (
            f", with warnings from {', '.join(warned)}." if warned else "."
        )
    for check in checks:
        if check in counted and Verdict.parse(counted[check].verdict) is verdict:
            return f"{check}: {counted[check].summary}"
    missing = [check for check in checks if check not in counted]
    return f"No result of {', '.join(missing)}." if missing else "Nothing was checked."


def digest(run: Mapping[str, Any], results: Iterable[Any]) -> str:
    """SHA-256 (hex) over a run and its results in canonical order (check, attempt): what entries of the first release
    hold of a run."""
    return digest_of({"run": dict(run), "results": _in_order(results)})


def whole_digest(run: Any, results: Iterable[Any], kept: Iterable[Sequence[str]]) -> str:
    """`digest` with what it left out until 0.1: the run's kind, when it began, and what evidence it kept (each as
    kind, SHA-256, source, node name). Entries of today hold this one."""
    began = run.started_at.isoformat() if run.started_at else None
    described: dict[str, Any] = identity(run) | {"kind": run.kind, "started_at": began}
    return digest_of(
        {
            "run": described,
            "results": _in_order(results),
            "kept": sorted(list(body) for body in kept),
        }
    )


def result_digest(result: Any) -> str:
    """What the ledger holds of one result of a run that has not ended."""
    return digest_of(_in_order([result]))


def _in_order(results: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {
            "check": result.check_id,
            "attempt": result.attempt,
            "verdict": result.verdict,
            "warn": result.warn,
            "severity": result.severity,
            "summary": result.summary,
            "measures": result.measures,
            "next": result.next_step,
            "does_not_prove": result.does_not_prove,
            "evidence": result.evidence,
            "observed_at": result.observed_at.isoformat(),
        }
        for result in sorted(results, key=lambda result: (result.check_id, result.attempt))
    ]


def identity(run: Any) -> dict[str, Any]:
    """The part of a run that its digest covers."""
    return {
        "id": run.pk,
        "deployment": run.deployment_id,
        "plan": run.plan_id,
        "slot": run.slot.isoformat() if run.slot else None,
        "trigger": run.trigger,
        "checks": list(run.checks),
        "state": run.state,
        "verdict": run.verdict,
        "fingerprint": run.fingerprint,
    }
