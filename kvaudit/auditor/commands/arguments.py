"""Parses the arguments that the commands share: argparse with our exit codes, the flags that describe a target,
printing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from kvaudit.auditor import report
from kvaudit.auditor.engines import NAMES
from kvaudit.auditor.text.quoting import without_keys
from kvaudit.auditor.verdict import Verdict


class UsageError(Exception):
    """The command line cannot be used; the text is the sentence to print. Whatever in it could be a key is
    not repeated: standard error ends up in the logs of pipelines."""

    def __init__(self, sentence: str) -> None:
        super().__init__(without_keys(sentence))


class Parser(argparse.ArgumentParser):
    """argparse that raises `UsageError` instead of leaving with 2, which would read as inconclusive."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}; {self.prog} --help explains the flags.")


CONNECTIONS = 8
"""Fresh connections over which a command reads each node: of two processes that answer at random, the second stays
unseen in one of 128 runs. ``--replicas`` reads until all were seen."""


def seconds(text: str) -> float:
    """A positive number of seconds, at most a day."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def add_target(parser: argparse.ArgumentParser) -> None:
    """The flags that say what is audited and how it is reached."""
    target = parser.add_argument_group("what is audited")
    target.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="[ROLE=]URL",
        help="a node, for instance prefill=http://10.0.0.7:30000; may be repeated",
    )
    target.add_argument("--target", metavar="FILE", help="a fleet file instead of --node")
    target.add_argument("--deployment", metavar="SLUG", default="", help="which deployment is meant")
    target.add_argument(
        "--replicas",
        metavar="N",
        help="processes that answer in turn at each --node address (a Service): read until N were seen",
    )
    target.add_argument("--engine", default="auto", help=f"{', '.join(NAMES)} or auto (default)")
    rules = parser.add_argument_group("what is asked of it")
    rules.add_argument("--context", metavar="TOKENS", help="the context length promised to clients")
    rules.add_argument("--headroom", metavar="FACTOR", help="pool >= FACTOR x context (default 1.25)")
    rules.add_argument(
        "--pin",
        action="append",
        metavar="SPECIFIER",
        help="least version, for instance 'sglang>=0.5.22' (the default); may be repeated",
    )
    reach = parser.add_argument_group("how it is reached")
    reach.add_argument("--api-key-env", metavar="NAME", default="", help="variable that holds the nodes' key")
    reach.add_argument(
        "--header-env",
        action="append",
        default=[],
        metavar="HEADER=NAME",
        help="send HEADER with the value of variable NAME; may be repeated",
    )
    reach.add_argument("--ca-file", metavar="FILE", default="", help="trust this CA (PEM) for https nodes")
    reach.add_argument("--client-cert", metavar="FILE", default="", help="client certificate (PEM)")
    reach.add_argument("--client-key", metavar="FILE", default="", help="its key (PEM, no passphrase)")
    reach.add_argument(
        "--timeout", type=seconds, default=20.0, metavar="S", help="deadline of the audit (default 20 s)"
    )
    parser.add_argument("--json", action="store_true", help="print a kvaudit.report/1 document")


def speak(sentence_or_line: str, document: dict[str, Any], *, as_json: bool) -> int:
    """Print the report or the line; returns the exit code of the report."""
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")
    else:
        print(sentence_or_line)
    sys.stdout.flush()
    return int(document["exit_code"])


def refuse(sentence: str, arguments: Sequence[str]) -> int:
    """A usage error: the sentence on stderr, a valid report on stdout with ``--json``, exit code 3."""
    if "--json" in arguments:
        speak("", report.failure(sentence), as_json=True)
    print(f"ERROR {sentence}", file=sys.stderr)
    return Verdict.ERROR.exit_code
