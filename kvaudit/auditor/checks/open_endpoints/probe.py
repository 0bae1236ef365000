"""Asks each node its engine's readable paths without a key and judges what was open. What the check is for:
`kvaudit.auditor.checks.open_endpoints`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kvaudit.auditor.checks.contract import Anonymous, Audit, NodeSeen
from kvaudit.auditor.checks.node_coverage import evidence, read_nodes, scope, sentence, unread
from kvaudit.auditor.checks.open_endpoints import CHECK
from kvaudit.auditor.checks.open_endpoints.open_routes import (
    INFERENCE,
    MODELS,
    ROUTES,
    SCALING,
    UNKNOWN_ROUTES,
    Answered,
    find,
    routes,
    undecided_routes,
)
from kvaudit.auditor.checks.replicas import doubts
from kvaudit.auditor.engines import describe
from kvaudit.auditor.readings import Exposure
from kvaudit.auditor.verdict import Result, Verdict

DECISIVE = (MODELS, ROUTES)
"""Asked once more where only they got no answer: a completion route is found by these two, and the list, 270 kB on
vLLM, is built on its first request, so that a busy server may miss the deadline once."""

NOT_TESTED = (
    "the bootstrap port of prefill nodes, the ports of connectors and stores, and every route that acts "
    "were not asked"
)
DOES_NOT_PROVE = (
    "It shows what this network place may read without a key. It says nothing of other places, of other "
    "ports (bootstrap, connectors, stores), or of what one valid key may see of another tenant."
)


Seen = Sequence[Answered]


class OpenEndpointsProbe:
    """Asks without a key what should need one, by allow-listed reads only."""

    id = CHECK.id

    async def observe(self, audit: Audit) -> Seen:
        """Every node at once, each path once."""
        if audit.ask_anonymously is None:
            return ()
        return await asyncio.gather(*(_ask(node, audit) for node in read_nodes(audit)))

    def judge(self, seen: Seen, audit: Audit) -> Result:
        """Answers without a key -> result."""
        problems = [*unread(audit), *(silence for answered in seen if (silence := _silent(answered)))]
        findings = {answered.node.name: find(answered) for answered in seen}
        for node in read_nodes(audit):
            assert node.facts is not None
            known = findings.setdefault(node.name, [])
            known += [exposure for exposure in node.facts.exposures if exposure not in known]
        fails = [
            (name, exposure)
            for name, exposures in findings.items()
            for exposure in exposures
            if exposure.severity == "fail"
        ]
        warns = [
            (name, exposure)
            for name, exposures in findings.items()
            for exposure in exposures
            if exposure.severity != "fail"
        ]
        untold = _untold(seen, audit)
        verdict, said = _decide(fails, problems, untold, warns, scope(read_nodes(audit)))
        return Result(
            check=self.id,
            verdict=verdict,
            summary=sentence(said),
            measures=measures(findings, seen, untold),
            next=_advise(verdict, fails, warns),
            does_not_prove=DOES_NOT_PROVE,
            warn=bool(warns) and verdict in (Verdict.PASS, Verdict.INCONCLUSIVE),
            severity="high" if verdict is Verdict.FAIL else "",
            evidence=evidence(audit),
        )


async def _ask(node: NodeSeen, audit: Audit) -> Answered:
    assert node.facts is not None
    assert audit.ask_anonymously is not None
    newer: Anonymous | None = None
    answers: dict[str, Anonymous] = {}
    for path, tells in describe(node.facts.engine).surface.reads.items():
        if tells == "configuration" and newer is not None and newer.status != 404:
            continue  # the old name of the same thing
        answers[path] = await audit.ask_anonymously(node.name, path)
        if tells == "configuration":
            newer = answers[path]
    if any(answer.status for answer in answers.values()):
        for path in DECISIVE:
            if path in answers and answers[path].status == 0:
                answers[path] = await audit.ask_anonymously(node.name, path)
    return Answered(node, answers, routes(answers.get(ROUTES)))


def _silent(answered: Answered) -> str:
    """A sentence when a node answered nothing at all without a key."""
    answers = answered.answers.values()
    if answers and all(answer.status == 0 for answer in answers):
        why = next((answer.problem for answer in answers if answer.problem), "no answer came")
        return f"{answered.node.name} did not answer without a key: {why}"
    return ""


def _untold(seen: Seen, audit: Audit) -> list[str]:
    """What could not be seen and would have to be, for a pass."""
    if audit.ask_anonymously is None and read_nodes(audit):
        return ["nothing was asked without a key"]
    if not read_nodes(audit):
        return ["no node was read, so nothing was asked"]
    said = []
    for answered in seen:
        assert answered.node.facts is not None
        engine = describe(answered.node.facts.engine)
        said += undecided_routes(answered, engine.surface)
        if not answered.answers:
            said.append(
                f"{answered.node.name}: no path of {engine.id} is known that could be asked without a key"
            )
        elif engine.surface.listed and answered.routes is None and not _silent(answered):
            silent = answered.answers.get(ROUTES)
            unlisted = (
                f"did not answer {ROUTES} in time"
                if silent is not None and silent.status == 0
                else "does not list its routes"
            )
            said.append(f"{answered.node.name} {unlisted}, so unguarded ones cannot be seen")
        elif any(
            answer.status == 0 or answer.status >= 500 for answer in answered.answers.values()
        ) and not _silent(answered):
            lost = sorted(
                path
                for path, answer in answered.answers.items()
                if answer.status == 0 or answer.status >= 500
            )
            said.append(f"{answered.node.name} did not answer {', '.join(lost)}")
    return [*said, *doubts(audit)]


def _decide(
    fails: Sequence[tuple[str, Exposure]],
    problems: Sequence[str],
    untold: Sequence[str],
    warns: Sequence[tuple[str, Exposure]],
    where: str,
) -> tuple[Verdict, str]:
    if fails:
        name, first = fails[0]
        more = f"; and {len(fails) - 1} more" if len(fails) > 1 else ""
        return Verdict.FAIL, f"on {name} {first.what} ({first.where}){more}"
    if problems:
        return Verdict.ERROR, problems[0]
    if untold:
        return Verdict.INCONCLUSIVE, untold[0]
    if warns:
        kinds = list(dict.fromkeys(warning.what for _, warning in warns))
        return (
            Verdict.PASS,
            f"on {where} no {_closed(kinds)} is open without a key, but {'; '.join(kinds)}",
        )
    return Verdict.PASS, f"on {where} nothing that was asked could be read without a key"


def _closed(open_kinds: Sequence[str]) -> str:
    """What is not open, leaving out what the warnings beside it say is, or may be."""
    closed = ["secret"]
    if not any(kind.startswith((SCALING, UNKNOWN_ROUTES)) for kind in open_kinds):
        closed.append("acting route")
    if not any(kind.startswith((INFERENCE, UNKNOWN_ROUTES)) for kind in open_kinds):
        closed.append("completion")
    return closed[0] if len(closed) == 1 else f"{', '.join(closed[:-1])} or {closed[-1]}"


def _advise(
    verdict: Verdict, fails: Sequence[tuple[str, Exposure]], warns: Sequence[tuple[str, Exposure]]
) -> str:
    if verdict is Verdict.FAIL and any("can be read in clear" in fail.what for _, fail in fails):
        return "Change the exposed keys now, then let only the gateway reach this port."
    if verdict is Verdict.FAIL:
        return (
            "Let only the gateway reach this port, or close these routes; set an admin key if there is one."
        )
    if verdict is Verdict.ERROR:
        return "Make the node answer and run it again; nothing was learnt."
    if verdict is Verdict.INCONCLUSIVE:
        return "Supply what is named above; the port should be reachable for the gateway alone in any case."
    return "Make sure that only the gateway reaches this port." if warns else "Nothing now."


def measures(findings: Mapping[str, Sequence[Exposure]], seen: Seen, untold: Sequence[str]) -> dict[str, Any]:
    return {
        "findings": [
            {"node": name, "what": change.what, "where": change.where, "severity": change.severity}
            for name, exposures in sorted(findings.items())
            for change in exposures
        ],
        "asked": {
            answered.node.name: {path: answer.status for path, answer in sorted(answered.answers.items())}
            for answered in seen
        },
        "undecided": [sentence(answered) for answered in untold],
        "not_tested": sentence(NOT_TESTED),
    }


PROBE = OpenEndpointsProbe()
