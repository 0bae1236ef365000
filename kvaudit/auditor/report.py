"""Writes what a run found as one JSON document (``kvaudit.report/1``) and as one line for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import deployment_digest, fingerprint
from kvaudit.auditor.verdict import REPORT_SCHEMA, WORST_FIRST, Result, Verdict, roll_up

ALIKE = 40
"""Two summaries that begin alike say the same (a node that cannot be read fails every check)."""


def build(slug: str, nodes: Sequence[NodeSeen], results: Sequence[Result]) -> dict[str, Any]:
    """The report of one run. ``target.fingerprint`` is null unless every node was read."""
    verdict = roll_up([result.verdict for result in results])
    return {
        "schema": REPORT_SCHEMA,
        "verdict": verdict.value,
        "exit_code": verdict.exit_code,
        "target": {
            "deployment": slug,
            "nodes": [node_report(node) for node in nodes],
            "fingerprint": _fingerprint(nodes),
        },
        "results": [result.as_report() for result in results],
    }


def failure(sentence: str) -> dict[str, Any]:
    """A valid report for a run that never began: usage errors and defects of kvaudit."""
    return {
        "schema": REPORT_SCHEMA,
        "verdict": Verdict.ERROR.value,
        "exit_code": Verdict.ERROR.exit_code,
        "target": {"deployment": "", "nodes": [], "fingerprint": None},
        "results": [],
        "error": sentence,
    }


def node_report(node: NodeSeen) -> dict[str, Any]:
    """One node: what was read with its sources, or the problem."""
    report: dict[str, Any] = {"name": node.name, "url": node.url, "role": node.effective_role}
    facts = node.facts
    if facts is None:
        return {**report, "problem": node.problem}
    report.update(
        engine=facts.engine,
        kind=facts.kind,
        version=facts.version.as_report(),
        model=facts.model.as_report(),
        context=facts.context.as_report(),
        pool=facts.pool.as_report(),
        input_limit=facts.input_limit.as_report(),
        fingerprint=fingerprint(facts).digest,
    )
    if node.others:
        report["others"] = [
            {name: getattr(other, name).as_report() for name in ("process", "version", "context", "pool")}
            for other in node.others
        ]
    if facts.workers:
        report["workers"] = [{"url": worker.url, "role": worker.role} for worker in facts.workers]
    if facts.notes:
        report["notes"] = list(facts.notes)
    return report


def _fingerprint(nodes: Sequence[NodeSeen]) -> str | None:
    if not nodes or any(node.facts is None for node in nodes):
        return None
    return deployment_digest(fingerprint(node.facts) for node in nodes if node.facts is not None) or None


def deciding(results: Sequence[Result]) -> Result | None:
    """The result that decides the roll-up; the first of the worst."""
    ranked = sorted(results, key=lambda result: WORST_FIRST.index(result.verdict))
    return ranked[0] if ranked else None


def line(verdict: Verdict, results: Sequence[Result], ending: str = "") -> str:
    """One line to act on: the verdict, each result that decides it, and what to do next."""
    chosen = [result for result in results if result.verdict is verdict]
    if not chosen:
        first = deciding(results)
        chosen = [first] if first is not None else []
    sentences: list[str] = []
    alike: list[str] = []
    for result in chosen:
        if sentences and result.summary[:ALIKE] == chosen[0].summary[:ALIKE]:
            alike.append(result.check)
        else:
            sentences.append(f"{result.check}: {result.summary}")
    if alike:
        sentences.insert(1, f"({', '.join(alike)} likewise.)")
    if verdict is not Verdict.PASS and chosen and chosen[0].next:
        sentences.append(f"Next: {chosen[0].next}")
    warned = [result.check for result in results if result.warn]
    if warned:
        sentences.append(f"Warnings from {', '.join(warned)}.")
    if ending:
        sentences.append(ending)
    words = f"{verdict.value.upper()} {' '.join(sentences)}".split()
    return "".join(char if char.isprintable() else "?" for char in " ".join(words))
