"""Compares each node's fingerprint with the one on record; sends nothing of its own. What the check is for:
`kvaudit.auditor.checks.drift`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvaudit.auditor.checks.contract import Audit, History
from kvaudit.auditor.checks.drift import CHECK
from kvaudit.auditor.checks.node_coverage import evidence, listed, read_nodes, sentence, unread
from kvaudit.auditor.checks.pool.numbers import required_tokens
from kvaudit.auditor.checks.replicas import doubts
from kvaudit.auditor.readings import EngineFacts, FieldChange, diff, fingerprint
from kvaudit.auditor.verdict import Result, Verdict

DOES_NOT_PROVE = (
    "It proves that the gate has been run since the last change that was seen, not what the gate found, and "
    "nothing of changes between two readings that were undone again."
)
RUN_THE_GATE = (
    "Run the gate set (pool, version, rejection, canary) now; until it completes, the change is unaudited."
)


class DriftProbe:
    """Compares each node's fingerprint with the last significant one on record."""

    id = CHECK.id

    async def observe(self, audit: Audit) -> None:
        """Nothing beyond the readings that every passive check shares."""

    def judge(self, seen: None, audit: Audit) -> Result:
        """Fingerprints and history -> result."""
        changes = changed_now(audit)
        verdict, said, advice = decide(audit, changes)
        return Result(
            check=self.id,
            verdict=verdict,
            summary=sentence(said),
            measures=measures(audit, changes),
            next=advice,
            does_not_prove=DOES_NOT_PROVE,
            severity="high" if verdict is Verdict.FAIL else "",
            evidence=evidence(audit),
        )


def decide(audit: Audit, changes: dict[str, tuple[FieldChange, ...]]) -> tuple[Verdict, str, str]:
    """The verdict, its sentence and what to do now."""
    history, missing = audit.history, unread(audit)
    if history is None:
        return (
            Verdict.INCONCLUSIVE,
            "history not consulted: whether the gate ran after the last change is known to the server alone",
            "Ask the server as well (kvaudit gate --server).",
        )
    if changes:
        what = listed(f"{name} ({_fields(changes)})" for name, changes in sorted(changes.items()))
        return (
            Verdict.FAIL,
            f"changed since the last reading, and the gate has not run since: {what}",
            RUN_THE_GATE,
        )
    if _gate_is_behind(history):
        assert history.fingerprint_changed_at is not None
        since = history.fingerprint_changed_at.isoformat(timespec="minutes")
        return (
            Verdict.FAIL,
            f"the configuration changed at {since} and the gate has not completed since",
            RUN_THE_GATE,
        )
    if missing:
        return Verdict.ERROR, missing[0], "Make the node answer (address, key, TLS) and run it again."
    if not read_nodes(audit):
        return (
            Verdict.INCONCLUSIVE,
            "no node was read, so nothing could be compared",
            "Give the nodes to audit.",
        )
    if history.gate_completed_at is None:
        return Verdict.INCONCLUSIVE, "the gate set has never completed on this deployment", RUN_THE_GATE
    if history.gate_expired:
        return Verdict.INCONCLUSIVE, "the gate set has expired: it completed too long ago", RUN_THE_GATE
    unseen = sorted(node.name for node in read_nodes(audit) if node.name not in history.previous)
    if unseen:
        return (
            Verdict.INCONCLUSIVE,
            f"there is no earlier reading of {listed(unseen)} to compare with",
            "Run it again after the first reading has been stored.",
        )
    if several := doubts(audit):
        return (
            Verdict.INCONCLUSIVE,
            several[0],
            "Give every process an address of its own, and run it again.",
        )
    at = history.gate_completed_at.isoformat(timespec="minutes")
    return Verdict.PASS, f"nothing has changed since the gate set completed at {at}", "Nothing now."


def _gate_is_behind(history: History) -> bool:
    changed, completed = history.fingerprint_changed_at, history.gate_completed_at
    return changed is not None and (completed is None or completed < changed)


def changed_now(audit: Audit) -> dict[str, tuple[FieldChange, ...]]:
    """Node -> significant changes against its last significant fingerprint. A field that could not
    be read this time is no change: a silent endpoint is not a new configuration. Nor is one that is
    read for the first time: it has not been seen to move (`kvaudit.server.fleet.comparison`)."""
    if audit.history is None:
        return {}
    found = {}
    for node in read_nodes(audit):
        assert node.facts is not None
        before = audit.history.previous.get(node.name)
        if before is None:
            continue
        changes = tuple(
            change
            for change in diff(before, fingerprint(node.facts), limits=limits(node.facts, audit))
            if change.significant and change.after is not None and change.before is not None
        )
        if changes:
            found[node.name] = changes
    return found


def limits(facts: EngineFacts, audit: Audit) -> tuple[int, ...]:
    """Lengths in tokens that a pool must not cross unnoticed: context, headroom x context, edge."""
    contexts = [tokens for tokens in (facts.context.value, audit.rules.context) if tokens is not None]
    found = [*contexts, *(required_tokens(audit.rules.headroom, context) for context in contexts)]
    if audit.rules.edge_limit is not None:
        found += [audit.rules.edge_limit, required_tokens(audit.rules.headroom, audit.rules.edge_limit)]
    return tuple(sorted(set(found)))


def _fields(changes: Sequence[FieldChange]) -> str:
    shown = [
        f"{change.name.removeprefix('settings.')} {change.before} -> {change.after}" for change in changes[:3]
    ]
    return ", ".join(shown) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")


def measures(audit: Audit, changes: dict[str, tuple[FieldChange, ...]]) -> dict[str, Any]:
    history = audit.history
    return {
        "history_consulted": history is not None,
        "changed_at": _at(history.fingerprint_changed_at if history else None),
        "gate_completed_at": _at(history.gate_completed_at if history else None),
        "gate_expired": history.gate_expired if history else None,
        "changes": {
            name: [
                {"field": change.name, "before": _plain(change.before), "after": _plain(change.after)}
                for change in changes
            ]
            for name, changes in sorted(changes.items())
        },
    }


def _at(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | bool) or value is None else str(value)


PROBE = DriftProbe()
