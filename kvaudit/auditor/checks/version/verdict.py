"""From versions, pins and advisories to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvaudit.auditor.advisories import names
from kvaudit.auditor.advisories.load import shipped
from kvaudit.auditor.advisories.match import Match
from kvaudit.auditor.advisories.pins import parse_pin, pins_for
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.findings import Findings
from kvaudit.auditor.checks.node_coverage import (
    evidence,
    listed,
    missing_roles,
    read_nodes,
    routers,
    scope,
    sentence,
    unlisted_workers,
    unread,
    wrong_roles,
)
from kvaudit.auditor.checks.replicas import doubts
from kvaudit.auditor.checks.version import CHECK
from kvaudit.auditor.checks.version.standings import BuildAssessment, assess_builds, named
from kvaudit.auditor.engines import ENGINES
from kvaudit.auditor.verdict import SEVERITIES, Result, Verdict

CLEAR = "No listed advisory matches. That is not evidence of isolation."


DOES_NOT_PROVE = (
    "A version says which known bugs a build may have, not that it has no others. No release read through "
    "sglang 0.5.23 verifies transfer counts; only the optional KV checksum (0.5.21 and later) comes near. "
    "Connectors and stores that the engine does not name are not considered."
)


def judge_version(audit: Audit) -> Result:
    """Versions, pins, advisories -> result."""
    try:
        for pin in audit.rules.pins:
            parse_pin(pin)
    except ValueError as problem:
        return Result(CHECK.id, Verdict.ERROR, str(problem), next="Correct the pin and run the check again.")
    standings = assess_builds(audit)
    findings = Findings()
    findings.errors += (*unread(audit), *wrong_roles(audit))
    judge_coverage(audit, findings)
    findings.unknowns += doubts(audit)
    judge_names(audit, findings)
    for standing in standings:
        judge_pins(standing, audit, findings)
        judge_build(standing, findings)
        judge_advisories(standing, findings)
    verdict = findings.verdict()
    return Result(
        check=CHECK.id,
        verdict=verdict,
        summary=summarise(verdict, findings, standings, audit),
        measures=measures(standings, audit, findings),
        next=advise(verdict, standings, audit),
        does_not_prove=DOES_NOT_PROVE,
        warn=bool(findings.warnings) and verdict in (Verdict.PASS, Verdict.INCONCLUSIVE),
        severity=_severity(standings) if verdict is Verdict.FAIL else "",
        evidence=evidence(audit),
    )


def judge_coverage(audit: Audit, findings: Findings) -> None:
    """Nothing read, or not everything that a deployment-wide audit must read."""
    if not audit.nodes:
        findings.unknowns.append("no node was given, so no version was read")
    elif not read_nodes(audit) and routers(audit):
        workers = unlisted_workers(audit)
        which = f": {', '.join(workers)}" if workers else ""
        findings.unknowns.append(f"only the router was given; give its workers{which}")
    elif audit.complete and unlisted_workers(audit):
        findings.unknowns.append(f"workers were not read: {', '.join(unlisted_workers(audit))}")
    for role in missing_roles(audit):
        findings.unknowns.append(f"no {role} node of {audit.deployment} was read")


def judge_names(audit: Audit, findings: Findings) -> None:
    """Declared names that decide nothing. New ones are refused where they are given; these were stored
    before, or an advisory has gone that asked for them."""
    for read, given in (
        (names.component, audit.rules.components),
        (names.condition, audit.rules.conditions),
    ):
        for name in given:
            try:
                read(name)
            except ValueError as problem:
                findings.warnings.append(str(problem).rstrip("."))
    for pin in map(parse_pin, audit.rules.pins):
        if pin.engine not in ENGINES:
            findings.warnings.append(f"the pin {pin} is for no engine that is read, so it decides nothing")


def judge_pins(assessment: BuildAssessment, audit: Audit, findings: Findings) -> None:
    """Below its pin = fail; a build that may lie on either side = inconclusive."""
    for pin in pins_for(assessment.engine, audit.rules.pins):
        allowed = pin.allows(assessment.build)
        if allowed is False:
            findings.fails.append(f"{named(assessment)} is outside the pin {pin}")
        elif allowed is None and assessment.build.known:
            findings.unknowns.append(
                f"{named(assessment)} may or may not satisfy the pin {pin}: it {assessment.build.why}"
            )


def judge_build(assessment: BuildAssessment, findings: Findings) -> None:
    """Can the version string be believed and compared at all?"""
    said = assessment.traits.sentence()
    because = f"; {said}, which does not show that a fix is in it" if said else ""
    if assessment.why_unknown:
        findings.unknowns.append(
            f"the version of {listed(assessment.names)} is not known ({assessment.why_unknown}){because}"
        )
    elif assessment.build.kind not in ("release", "candidate"):
        findings.unknowns.append(f"{named(assessment)} {assessment.build.why}{because}")
    elif assessment.build.newer:
        findings.warnings.append(f"{named(assessment)} {assessment.build.newer}: update kvaudit")
    if assessment.traits.denied:
        findings.unknowns.append(
            f"{named(assessment)} shows features of other releases: {', '.join(assessment.traits.denied)}"
        )
    if assessment.traits.lacking:
        findings.unknowns.append(
            f"{named(assessment)} lacks what its release shows: {', '.join(assessment.traits.lacking)}; another "
            "process may have answered"
        )
    if assessment.traits.absent:
        findings.warnings.append(
            f"{named(assessment)} lacks features it should have: {', '.join(assessment.traits.absent)}"
        )


def judge_advisories(assessment: BuildAssessment, findings: Findings) -> None:
    for match in assessment.matches:
        advisory = match.advisory
        if match.outcome == "applies":
            findings.fails.append(f"{named(assessment)} is affected by {advisory.id}: {advisory.title}")
        elif match.outcome == "undecided":
            findings.unknowns.append(
                f"{named(assessment)} may be affected by {advisory.id}: {_open_question(match)}"
            )
        else:
            findings.warnings.append(f"possibly relevant: {advisory.id}, {advisory.title}")


def _open_question(match: Match) -> str:
    asked = [f"{listed(match.asks)} must be read or declared"] if match.asks else []
    return "; ".join([*asked, *([match.why] if match.why else [])])


def summarise(
    verdict: Verdict, findings: Findings, standings: Sequence[BuildAssessment], audit: Audit
) -> str:
    """One sentence with the scope; how many more are in the measures."""
    where = scope(read_nodes(audit))
    if verdict is Verdict.PASS:
        builds = listed(sorted(named(build) for build in standings))
        count = len({match.advisory.id for build in standings for match in build.matches})
        also = f" {count} without an established range or of lesser effect are listed." if count else ""
        pinned = any(pins_for(build.engine, audit.rules.pins) for build in standings)
        return (
            f"{builds} on {where} {'satisfies its pin' if pinned else 'has no pin to satisfy'}. {CLEAR}{also}"
        )
    if verdict is Verdict.FAIL:
        condemned = filter(None, (_condemned(build, audit) for build in standings))
        return sentence(f"On {where}, {'; '.join(condemned)}")
    first, *others = findings.errors or findings.unknowns
    more = f"; and {len(others)} more" if others else ""
    return sentence(f"On {where}, {first}{more}" if standings else first)


def _condemned(assessment: BuildAssessment, audit: Audit) -> str:
    """ "sglang 0.5.19 is outside the pin sglang >=0.5.22 and affected by KVA-001 and KVA-004"."""
    broken = [
        str(pin)
        for pin in pins_for(assessment.engine, audit.rules.pins)
        if pin.allows(assessment.build) is False
    ]
    ids = [match.advisory.id for match in assessment.matches if match.outcome == "applies"]
    parts = [f"outside the pin {listed(broken)}"] if broken else []
    parts += [f"affected by {listed(ids)}"] if ids else []
    return f"{named(assessment)} is {listed(parts)}" if parts else ""


def advise(verdict: Verdict, standings: Sequence[BuildAssessment], audit: Audit) -> str:
    """What to do now: the upgrade that the gravest finding asks for."""
    applying = [
        match.advisory for build in standings for match in build.matches if match.outcome == "applies"
    ]
    asks = sorted(
        {
            ask
            for build in standings
            for match in build.matches
            if match.outcome == "undecided"
            for ask in match.asks
        }
    )
    if verdict is Verdict.FAIL:
        remedies = list(dict.fromkeys(advisory.remedy for advisory in applying if advisory.remedy))
        return " ".join(["Install a build that the pins allow and run the gate again.", *remedies])
    if verdict is Verdict.ERROR and not unread(audit):
        return "Correct the role and run it again: conditions of advisories depend on it."
    if verdict is Verdict.ERROR:
        return "Make the node answer (address, key, TLS) and run it again; nothing was learnt."
    if verdict is Verdict.INCONCLUSIVE and (
        doubts(audit) or any(build.traits.denied or build.traits.lacking for build in standings)
    ):
        return "Give every process an address of its own, without a proxy that cuts its answers, and run it again."
    if verdict is Verdict.INCONCLUSIVE and asks:
        return f"Declare under conditions whether these hold: {', '.join(asks)}."
    if verdict is Verdict.INCONCLUSIVE:
        return "Run a released build, or let the active checks show what this one does at its boundary."
    return "Nothing now; it is matched again whenever advisories or versions change."


def measures(standings: Sequence[BuildAssessment], audit: Audit, findings: Findings) -> dict[str, Any]:
    return {
        "advisory_set": shipped().version,
        "pins": list(audit.rules.pins),
        "findings": [
            sentence(finding) for finding in (*findings.fails, *findings.errors, *findings.unknowns)
        ],
        "warnings": [sentence(warning) for warning in findings.warnings],
        "builds": [
            {
                "engine": build.engine,
                "version": build.build.text or None,
                "kind": build.build.kind,
                "nodes": list(build.names),
                "features_say": build.traits.sentence(),
                "contradictions": list(build.traits.denied),
                "advisories": [
                    {
                        "id": match.advisory.id,
                        "outcome": match.outcome,
                        "severity": match.advisory.severity,
                        "effect": match.advisory.effect,
                        "title": match.advisory.title,
                        "affected": match.advisory.affected or None,
                        "fixed_in": match.advisory.fixed_in or None,
                        "references": list(match.advisory.references),
                        "undecided": list(match.asks),
                    }
                    for match in build.matches
                ],
            }
            for build in standings
        ],
    }


def _severity(standings: Sequence[BuildAssessment]) -> str:
    """That of the worst advisory that applies; a pin alone is a matter of policy: medium."""
    found = {
        match.advisory.severity
        for build in standings
        for match in build.matches
        if match.outcome == "applies"
    }
    return next((grade for grade in SEVERITIES if grade in found), "medium")
