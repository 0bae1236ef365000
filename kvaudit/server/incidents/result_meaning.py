"""Tells what a result of a check means for an incident: its kind, its severity and the first steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.server.incidents.models import Kind, Severity

_KINDS = {Meaning.LEAK: Kind.LEAK, Meaning.BOUNDARY: Kind.BOUNDARY, Meaning.CONFIGURATION: None}


def kind_of(check: str, severity: str) -> Kind | None:
    """Which incident a fail of this check belongs to; None when it opens none."""
    return _KINDS[checks.meaning(check, severity)]


def severity_of(said: str) -> Severity:
    """The check's own grade; *high* where it gave none."""
    return Severity(said) if said in Severity.values else Severity.HIGH


def items_of(check: str) -> list[str]:
    """Keys of the shipped checklist items that a check bears on."""
    from kvaudit.server.checklists.items import shipped

    return [item.key for item in shipped().items if check in item.checks]


def first_steps(
    failing: Iterable[str], lengths: Iterable[int], said: Iterable[str], *, stopped: bool = False
) -> list[str]:
    """What on-call does now, in order. ``said`` are the failing checks' own next steps; ``stopped`` where a prompt
    stopped the server from answering, which nothing may advise to repeat."""
    known = sorted(lengths)
    which = ", ".join(sorted(set(failing)) or checks.where("bounds"))
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
        f"Do not run {which} before that is done, pool and version pass, and an operator has resumed the active checks."
        if stopped
        else f"Run {which} again, and pool and version with them.",
    ]
    own = [sentence.strip() for sentence in said if sentence.strip()]
    if known:  # the first of ours says it with the length
        own = [sentence for sentence in own if not sentence.startswith("Stop serving prompts")]
    return [*dict.fromkeys(own), *steps]
