"""``kvaudit advisories``: the known bugs that the version check judges by, without any node."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from kvaudit import report
from kvaudit.advisories.load import Advisory, shipped
from kvaudit.advisories.match import Match, Subject, matches
from kvaudit.advisories.pins import engine_id
from kvaudit.advisories.versions import parse_build
from kvaudit.commands import arguments as flags
from kvaudit.verdict import Result, Verdict

DOES_NOT_PROVE = "That no listed advisory matches is not evidence of isolation."
_SHOWN = ("applies", "undecided", "possible")
_YES, _NO = frozenset({"yes", "true", "1"}), frozenset({"no", "false", "0"})


def parser() -> flags.Parser:
    made = flags.Parser(
        "kvaudit advisories", "Lists known bugs (list), or says which concern a version (match)."
    )
    made.add_argument("action", choices=("list", "match"))
    made.add_argument("engine", nargs="?", default="", help="sglang, vllm, ...; list takes it as a filter")
    made.add_argument("version", nargs="?", default="", help="for match: version or image tag")
    made.add_argument(
        "--with",
        dest="components",
        action="append",
        default=[],
        metavar="COMPONENT[=VERSION]",
        help="a connector or store that runs along, for instance lmcache=0.4.1",
    )
    made.add_argument(
        "--condition",
        action="append",
        default=[],
        metavar="NAME=yes|no",
        help="an answer to a condition that an advisory asks for",
    )
    made.add_argument("--json", action="store_true", help="print a JSON document")
    return made


def main(argv: Sequence[str]) -> int:
    """List (exit code 0) or match: 1 when an advisory applies, 2 when one cannot be decided, else 0."""
    try:
        given = parser().parse_intermixed_args(list(argv))
        if given.action == "list":
            return _list(given)
        return _match(given)
    except flags.UsageError as error:
        return flags.refuse(str(error), argv)


def _list(given: Namespace) -> int:
    known = shipped()
    wanted = engine_id(given.engine) if given.engine else ""
    chosen = [entry for entry in known.advisories if not wanted or entry.engine == wanted]
    document = {
        "schema": "kvaudit.advisories/1",
        "version": known.version,
        "advisories": [_row(entry) for entry in chosen],
        "exit_code": 0,
    }
    lines = [_line(entry) for entry in chosen]
    lines.append(f"{len(chosen)} of {len(known.advisories)} advisories, set {known.version}.")
    return flags.speak("\n".join(lines), document, as_json=given.json)


def _match(given: Namespace) -> int:
    if not given.engine or not given.version:
        raise flags.UsageError("advisories match needs ENGINE and VERSION, for instance: match sglang 0.5.19")
    conditions = dict(_condition(text) for text in given.condition)
    subject = Subject(
        engine_id(given.engine),
        parse_build(given.version),
        dict(_component(text) for text in given.components),
        conditions.get,
    )
    result = judge(subject, given.version)
    document = report.build(f"{subject.engine} {given.version}", [], [result])
    lines = [report.line(result.verdict, [result])]
    lines += [f"  {row['outcome']:9} {row['id']}: {row['title']}" for row in result.measures["advisories"]]
    return flags.speak("\n".join(lines), document, as_json=given.json)


def judge(subject: Subject, version: str) -> Result:
    """What the advisories say about one build, as a result of the check ``advisories``."""
    found = [each for each in matches(subject) if each.outcome in _SHOWN]
    applying = [each for each in found if each.outcome == "applies"]
    undecided = [each for each in found if each.outcome == "undecided"]
    name = f"{subject.engine} {version}"
    verdict, summary, ahead = Verdict.PASS, f"No listed advisory is known to apply to {name}.", ""
    if applying:
        verdict = Verdict.FAIL
        summary = f"{name} has {_ids(applying)}."
        ahead = applying[0].advisory.remedy or f"Read {', '.join(applying[0].advisory.references)}."
    elif undecided:
        verdict = Verdict.INCONCLUSIVE
        summary = f"Whether {_ids(undecided)} apply to {name} cannot be decided."
        asks = sorted({ask for each in undecided for ask in each.asks})
        reasons = [each.why for each in undecided if each.why]
        ahead = f"Answer {', '.join(asks)} with --condition." if asks else "; ".join(reasons[:1])
    return Result(
        "advisories",
        verdict,
        summary,
        measures={"advisories": [_found(each) for each in found], "set": shipped().version},
        next=ahead,
        does_not_prove=DOES_NOT_PROVE,
        warn=verdict is not Verdict.FAIL and any(each.outcome == "possible" for each in found),
    )


def _component(text: str) -> tuple[str, str]:
    name, _, version = text.partition("=")
    if not name:
        raise flags.UsageError(f"--with {text[:60]!r} must be COMPONENT or COMPONENT=VERSION.")
    return engine_id(name), version


def _condition(text: str) -> tuple[str, bool]:
    name, _, answer = text.partition("=")
    if not name or answer.lower() not in _YES | _NO:
        raise flags.UsageError(f"--condition {text[:60]!r} must be NAME=yes or NAME=no.")
    return name, answer.lower() in _YES


def _ids(found: Sequence[Match]) -> str:
    names = [each.advisory.id for each in found]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _line(entry: Advisory) -> str:
    affected = entry.affected or "range not established"
    return f"{entry.id:8} {entry.severity:8} {entry.engine} {affected}: {entry.title}"


def _row(entry: Advisory) -> Mapping[str, Any]:
    return {
        "id": entry.id,
        "engine": entry.engine,
        "pair": [list(each) for each in entry.pair],
        "title": entry.title,
        "severity": entry.severity,
        "affected": entry.affected or None,
        "fixed_in": entry.fixed_in or None,
        "conditions": list(entry.conditions),
        "references": list(entry.references),
        "verified": entry.verified,
    }


def _found(match: Match) -> Mapping[str, Any]:
    return {
        "outcome": match.outcome,
        "asks": list(match.asks),
        "why": match.why,
        **_row(match.advisory),
    }
