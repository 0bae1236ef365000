"""What a result of a check means for an incident: its kind, and the lengths at which it was seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvaudit.server.checklists.standing import MAY_PROVE_LEAK, PROOF_OF_LEAK
from kvaudit.server.incidents.models import Kind, Severity

BOUNDARY = frozenset({"rejection", "canary", "coherence"})
"""Fails of these that show no foreign text still show a boundary that does not hold."""

WATCHED = tuple(sorted(PROOF_OF_LEAK | MAY_PROVE_LEAK | BOUNDARY))

SIDE_CHANNELS = frozenset({"prefix", "concurrency", "session"})
"""Graded *high* these still cross tenants: a cache that tells who asked what, lost answers under load."""


def kind_of(check: str, severity: str) -> Kind | None:
    """Which incident a fail of this check belongs to; None when it opens none.

    A canary fails *high* when the server is unhealthy afterwards: no text crossed, so that is the boundary.
    """
    if severity == Severity.CRITICAL and check in PROOF_OF_LEAK | MAY_PROVE_LEAK:
        return Kind.LEAK
    if severity == Severity.HIGH and check in SIDE_CHANNELS:
        return Kind.LEAK
    return Kind.BOUNDARY if check in BOUNDARY else None


def severity_of(said: str) -> Severity:
    """The check's own grade; *high* where it gave none."""
    return Severity(said) if said in Severity.values else Severity.HIGH


def failing_lengths(check: str, measures: Mapping[str, Any]) -> list[int]:
    """Tokens of the prompts that showed it, ascending; [] where the check names none."""
    if check == "rejection":
        found = [
            row.get("tokens")
            for row in _rows(measures, "rungs")
            if any(
                _number(row.get(name)) >= 2
                for name in ("without_nonce", "cut", "empty", "timed_out", "failed")
            )
        ]
    elif check == "canary":
        found = [row.get("tokens") for row in _rows(measures, "hits")]
    elif check == "coherence":
        found = [row.get("tokens") for row in _rows(measures, "readings") if row.get("nonce") is False]
    else:
        found = []
    return sorted({length for length in found if isinstance(length, int) and length > 0})


def answered_lengths(check: str, measures: Mapping[str, Any]) -> set[int]:
    """Tokens of the prompts of a run that got a valid answer or a refusal that counts: what it really
    asked. Void trials ask nothing."""
    found: set[int] = set()
    if check == "rejection":
        for row in _rows(measures, "rungs"):
            if _number(row.get("accepted")) + _number(row.get("refused")) >= 1:
                found.add(int(_number(row.get("tokens"))))
    elif check == "canary":
        for row in _rows(measures, "matrix"):
            outcomes = row.get("outcomes")
            if isinstance(outcomes, Mapping) and any(
                _number(outcomes.get(name)) for name in ("answered", "refused")
            ):
                found.add(int(_number(row.get("tokens"))))
    return found


REPLAYABLE = frozenset({"rejection", "canary"})
"""Checks that take lengths of an earlier run beside their own."""


def items_of(check: str) -> list[str]:
    """Keys of the shipped checklist items that a check bears on."""
    from kvaudit.server.checklists.items import shipped

    return [item.key for item in shipped().items if check in item.checks]


def first_steps(checks: Iterable[str], lengths: Iterable[int], said: Iterable[str]) -> list[str]:
    """What on-call does now, in order. ``said`` are the failing checks' own next steps."""
    known = sorted(lengths)
    steps = []
    if known:
        steps.append(
            f"Stop serving prompts of {known[0]:,} tokens and more: set an edge limit below that, answered with an "
            "explicit HTTP 400."
        )
    steps += [
        "Quarantine the deployment, so that no gate lets a new node of it take traffic.",
        "Enlarge the prefill pool beyond headroom times context, or keep the edge limit and declare it.",
        "Upgrade to a build in which the matching advisory is fixed; see the version check.",
        f"Run {', '.join(sorted(set(checks)) or ['rejection', 'canary'])} again, and pool and version with them.",
    ]
    own = [sentence.strip() for sentence in said if sentence.strip()]
    if known:  # the first of ours says it with the length
        own = [sentence for sentence in own if not sentence.startswith("Stop serving prompts")]
    return [*dict.fromkeys(own), *steps]


def _rows(measures: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = measures.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
