"""The command line: a thin door. Subcommands import what they need when they are called.

Exit codes of every command: 0 pass, 1 fail, 2 inconclusive, 3 error; usage errors and unhandled
exceptions are 3 as well, and with ``--json`` they still print a valid report.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

GROUND_FLOOR = {
    "gate": "kvaudit.auditor.commands.gate",
    "probe": "kvaudit.auditor.commands.probe",
    "qualify": "kvaudit.auditor.commands.qualify",
    "advisories": "kvaudit.auditor.advisories.command",
    "lab": "kvaudit.lab.command",
}
"""Command -> the module whose ``main(argv)`` runs it; imported only when it is called."""

USAGE = """usage: kvaudit COMMAND ...

  gate         may this node take traffic? exit code 0 pass, 1 fail, 2 inconclusive, 3 error
  probe        run checks against nodes, without a database
  qualify      is this build safe at its boundary? before a replica takes traffic
  advisories   list the known bugs, or match them against a version
  lab          a miniature engine to audit, with faults on demand
  up, ledger   the whole product on this machine; the record (with kvaudit[server])
  backup       the database in one file; restore makes it the database again

kvaudit COMMAND --help explains a command."""

Command = Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises, never exits with Python's own codes."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an ASCII terminal must not become an exit code
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 3
    name, rest = arguments[0], arguments[1:]
    try:
        if name == "--version":
            from importlib.metadata import version

            print(f"kvaudit {version('kvaudit')}")
            return 0
        command = _find(name)
        if command is None:
            return _failed(f"There is no command {name[:40]!r}; kvaudit --help lists them.", rest)
        code = command(rest)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _failed("Interrupted.", rest)
    except BrokenPipeError:
        _forget_stdout()
        return 3
    except SystemExit as stop:
        if isinstance(stop.code, int) and stop.code in (0, 1, 3):
            return stop.code
        # argparse leaves with 2, which would read as inconclusive, after it has said why on stderr
        said = stop.code if isinstance(stop.code, str) and stop.code else "The command line cannot be used."
        return _failed(said, rest)
    except ImportError as error:
        if name not in GROUND_FLOOR and isinstance(error, ModuleNotFoundError):
            return _failed(
                f"kvaudit {name} is a part of the server, whose packages are not installed here "
                f"({error.name} is missing): install kvaudit[server].",
                rest,
            )
        return _failed(
            f"A part that this command needs cannot be imported ({error}): install kvaudit again, with the "
            "extra that the command needs, such as kvaudit[server] or kvaudit[lab].",
            rest,
        )
    except Exception as error:  # noqa: BLE001
        return _failed(_defect(error), rest)


def _defect(error: Exception) -> str:
    """The last net: a defect of ours must be an error for the pipeline, not Python's 1 = "fail"."""
    kind = type(error).__name__
    try:
        import traceback

        from kvaudit.auditor.transport import redact_text

        print(redact_text("".join(traceback.format_exception(error))), file=sys.stderr)
        said = f"{kind}: {redact_text(str(error))[:300]}"
    except Exception:  # noqa: BLE001
        said = kind  # what cannot be redacted is not said
    return f"kvaudit broke ({said}). Please report this."


def _forget_stdout() -> None:
    """Nobody reads on: without this Python's own flush at the end fails again and exits with 120."""
    import os
    from contextlib import suppress

    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _find(name: str) -> Command | None:
    if name in GROUND_FLOOR:
        from importlib import import_module

        found: Command = import_module(GROUND_FLOOR[name]).main
        return found
    from importlib.metadata import entry_points

    for entry in entry_points(group="kvaudit.commands", name=name):
        loaded: Command = entry.load()
        return loaded
    return None


def _failed(sentence: str, arguments: Sequence[str]) -> int:
    """Say it on stderr, and with ``--json`` as the report of `kvaudit.auditor.report.failure`, which is written
    out here because an installation that is broken may not be able to import that."""
    print(f"ERROR {sentence}", file=sys.stderr)
    if "--json" in arguments:
        import json

        target: dict[str, object] = {"deployment": "", "nodes": [], "fingerprint": None}
        document = {"schema": "kvaudit.report/1", "verdict": "error", "exit_code": 3, "target": target}
        try:
            print(json.dumps({**document, "results": [], "error": sentence}), flush=True)
        except BrokenPipeError:
            _forget_stdout()
    return 3


if __name__ == "__main__":
    sys.exit(main())
