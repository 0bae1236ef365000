"""``kvaudit advisories list`` and ``match``: the shipped advisories, and which apply to a version."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kvaudit.auditor.advisories import names
from kvaudit.auditor.advisories.load import Advisory, AdvisorySet, shipped
from kvaudit.auditor.advisories.match import Match, Subject, matches
from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.advisories.pins import engine_id
from kvaudit.auditor.advisories.versions import Build
from kvaudit.auditor.engines import RECOGNISABLE
from kvaudit.auditor.text.quoting import nearest, quoted
from kvaudit.auditor.verdict import Verdict

SCHEMA = "kvaudit.advisories/1"


class _Usage(Exception):
    """A usage error; printed with exit code 3, since Python's own 2 would read as inconclusive."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(message)


def main(argv: Sequence[str] | None = None) -> int:
    """``list``: 0. ``match``: 0 nothing applies, 1 one applies, 2 undecided, 3 usage error."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        given = _parser().parse_args(arguments)
        return _list(given) if given.action == "list" else _match(given)
    except _Usage as problem:
        sentence = f"kvaudit advisories: {problem}"
        if "--json" in arguments:
            _write(json.dumps({"schema": SCHEMA, "verdict": "error", "exit_code": 3, "summary": sentence}))
        else:
            sys.stderr.write(f"{sentence}\n")
        return Verdict.ERROR.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kvaudit advisories", description="Known bugs that mix up requests.")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=_Parser)
    listing = actions.add_parser("list", help="all shipped advisories")
    matching = actions.add_parser("match", help="which advisories apply to a version")
    for each in (listing, matching):
        each.add_argument("--engine", default="", help=f"{', '.join(RECOGNISABLE)}, lmcache, ...")
        each.add_argument("--json", action="store_true", help="print JSON")
    matching.add_argument("--version", default="", help="as the engine or its image tag says it")
    matching.add_argument(
        "--component", action="append", default=[], metavar="NAME=VERSION", help="a connector or store in use"
    )
    matching.add_argument(
        "--condition",
        action="append",
        default=[],
        metavar="NAME[=true|false]",
        help="a condition that is met, or not",
    )
    return parser


def _list(given: argparse.Namespace) -> int:
    engine = engine_id(given.engine)
    known = shipped()
    chosen = [advisory for advisory in known.advisories if not engine or engine in _names(advisory)]
    if engine and not chosen:
        raise _Usage(_no_engine(engine, known))
    if given.json:
        rows = [_row(advisory) for advisory in chosen]
        _write(
            json.dumps({"schema": SCHEMA, "version": known.version, "advisories": rows}, ensure_ascii=False)
        )
        return 0
    for advisory in chosen:
        _write(
            f"{advisory.id}  {advisory.severity:8}  {advisory.engine} "
            f"{advisory.affected or '(range unknown)'}: {advisory.title}"
        )
    _write(f"{len(chosen)} advisories, set {known.version}")
    return 0


def _match(given: argparse.Namespace) -> int:
    if not given.engine:
        raise _Usage("match needs --engine, such as --engine sglang --version 0.5.19")
    known = shipped()
    engine = engine_id(given.engine)
    build = build_of(engine, given.version)
    components = dict(_pair(component) for component in given.component)
    if engine not in _engines(known):
        raise _Usage(_no_engine(engine, known))
    said = dict(_condition(condition) for condition in given.condition)
    found = matches(Subject(engine, build, components, lambda name: said.get(name)))
    verdict = _verdict(found, build)
    if given.json:
        document = {
            "schema": SCHEMA,
            "version": known.version,
            "verdict": verdict.value,
            "exit_code": verdict.exit_code,
            "summary": _summary(verdict, found, engine, build),
            "engine": engine,
            "build": {"text": build.text, "kind": build.kind, "why": build.why},
            "matches": [
                {**_row(match.advisory), "outcome": match.outcome, "undecided": list(match.asks)}
                for match in found
            ],
        }
        _write(json.dumps(document, ensure_ascii=False))
        return verdict.exit_code
    for match in found:
        asks = f" [undecided: {', '.join(match.asks)}]" if match.asks else ""
        _write(
            f"{match.outcome:9}  {match.advisory.id}  {match.advisory.severity:8}  {match.advisory.title}{asks}"
        )
    _write(_summary(verdict, found, engine, build))
    return verdict.exit_code


def _verdict(found: Sequence[Match], build: Build) -> Verdict:
    outcomes = {match.outcome for match in found}
    if "applies" in outcomes:
        return Verdict.FAIL
    if "undecided" in outcomes or build.kind not in ("release", "candidate"):
        return Verdict.INCONCLUSIVE
    return Verdict.PASS


def _summary(verdict: Verdict, found: Sequence[Match], engine: str, build: Build) -> str:
    name = f"{engine} {build.text or 'without a version'}"
    ids = [match.advisory.id for match in found if match.outcome == "applies"]
    if verdict is Verdict.FAIL:
        return f"{name} is affected by {', '.join(ids)}."
    if verdict is Verdict.PASS:
        newer = f" {name[:1].upper()}{name[1:]} {build.newer}: update kvaudit." if build.newer else ""
        return f"No listed advisory matches {name}. That is not evidence of isolation.{newer}"
    asks = sorted({ask for match in found if match.outcome == "undecided" for ask in match.asks})
    doubt = "" if build.kind in ("release", "candidate") else f" The version {build.why}."
    question = f" Say with --condition whether these hold: {', '.join(asks)}." if asks else ""
    return f"Whether an advisory applies to {name} is undecided.{doubt}{question}"


def _pair(text: str) -> tuple[str, str]:
    name, _, version = text.partition("=")
    if not name.strip():
        raise _Usage(f"--component {quoted(text)} must be NAME=VERSION, such as lmcache=0.5.2")
    return _known(names.component, name), version.lstrip("=").strip()


def _condition(text: str) -> tuple[str, bool]:
    """``nixl``, ``nixl=true`` or ``nixl=false``; a condition's own name may hold ``<``, ``>`` or ``=``."""
    name, equals, answer = text.rpartition("=")
    if equals and answer.lower() in ("true", "false"):
        return _known(names.condition, name), answer.lower() == "true"
    return _known(names.condition, text), True


def _known(read: Callable[[str], str], name: str) -> str:
    """A misspelt name would silently decide nothing."""
    try:
        return read(name)
    except ValueError as problem:
        raise _Usage(str(problem)) from None


def _no_engine(engine: str, known: AdvisorySet) -> str:
    near = nearest(engine, _engines(known))
    hint = f"did you mean {near}?" if near else f"they speak of {', '.join(_engines(known))}."
    return f"no advisory speaks of {quoted(engine)}; {hint}"


def _names(advisory: Advisory) -> tuple[str, ...]:
    return (advisory.engine, *(name for name, _ in advisory.pair))


def _engines(known: AdvisorySet) -> list[str]:
    return sorted({name for advisory in known.advisories for name in _names(advisory)})


def _row(advisory: Advisory) -> dict[str, Any]:
    row = {name: getattr(advisory, name) for name in advisory.__dataclass_fields__}
    row["pair"] = dict(advisory.pair)
    row["checks"] = dict(advisory.checks)
    return row


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
