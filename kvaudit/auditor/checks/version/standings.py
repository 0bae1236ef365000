"""Every distinct build among the nodes, matched with the advisories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvaudit.auditor.advisories.features import Traits, merged, traits
from kvaudit.auditor.advisories.match import Match, Subject, matches
from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.advisories.versions import Build
from kvaudit.auditor.checks.contract import Audit, NodeSeen
from kvaudit.auditor.checks.replicas import processes
from kvaudit.auditor.checks.version.conditions import Answer, among_all, answers_for


@dataclass(frozen=True, slots=True)
class BuildAssessment:
    """One build among the nodes, and how pins and advisories stand to it."""

    engine: str
    build: Build
    why_unknown: str  # the reading's own words where there is no version
    names: tuple[str, ...]
    traits: Traits
    matches: tuple[Match, ...]


def assess_builds(audit: Audit) -> list[BuildAssessment]:
    """Every distinct build of every engine; advisories are matched per node and merged, the surest
    outcome first."""
    grouped: dict[tuple[str, str], list[NodeSeen]] = {}
    for node in processes(audit):
        assert node.facts is not None
        key = (node.facts.engine, node.facts.version.value or f"unknown: {node.facts.version.source}")
        grouped.setdefault(key, []).append(node)
    together = among_all(audit)
    return [_assess_build(nodes, audit, together) for nodes in grouped.values()]


def _assess_build(nodes: Sequence[NodeSeen], audit: Audit, together: Mapping[str, Answer]) -> BuildAssessment:
    facts = [node.facts for node in nodes if node.facts is not None]
    first = facts[0]
    build = build_of(first.engine, first.version.value)
    surest: dict[str, Match] = {}
    for node, node_facts in zip(nodes, facts, strict=True):
        components = {**node_facts.components, **audit.rules.components}
        for match in matches(
            Subject(node_facts.engine, build, components, answers_for(node, audit, together))
        ):
            known = surest.get(match.advisory.id)
            if known is None or _ORDER[match.outcome] < _ORDER[known.outcome]:
                surest[match.advisory.id] = match
    return BuildAssessment(
        engine=first.engine,
        build=build,
        why_unknown="" if first.version.known else first.version.source,
        names=tuple(node.name for node in nodes),
        traits=merged([traits(first.engine, each.features, build) for each in facts]),
        matches=tuple(sorted(surest.values(), key=lambda match: (_ORDER[match.outcome], match.advisory.id))),
    )


_ORDER = {"applies": 0, "undecided": 1, "possible": 2, "not": 3}


def named(assessment: BuildAssessment) -> str:
    return f"{assessment.engine} {assessment.build.text or 'of unknown version'}"
