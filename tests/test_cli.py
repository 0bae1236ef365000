"""The command line as a whole: finding commands, and exit codes when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kvaudit import cli
from kvaudit.auditor.report import failure
from tests.waiting import PATIENCE


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    for command in cli.GROUND_FLOOR:
        assert f"  {command} " in out


def test_no_command_is_a_usage_error() -> None:
    assert cli.main([]) == 3


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kvaudit 0.")


def test_unknown_command_is_3_and_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["frobnicate", "--json"]) == 3
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (report["verdict"], report["exit_code"]) == ("error", 3)
    assert "frobnicate" in err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (KeyboardInterrupt(), 3),
        (SystemExit(1), 1),
        (SystemExit(2), 3),
        (SystemExit(None), 3),
        (ImportError("no part"), 3),
        (SystemExit("words"), 3),
        (ValueError("x"), 3),
        (MemoryError(), 3),
    ],
)
def test_whatever_is_raised_has_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    def command(arguments: object) -> int:
        raise raised

    monkeypatch.setattr(cli, "_find", lambda name: command)
    assert cli.main(["anything"]) == code


def test_commands_of_other_floors_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    class Entry:
        @staticmethod
        def load() -> object:
            return lambda arguments: 2 if list(arguments) == ["a"] else 3

    def entry_points(*, group: str, name: str) -> list[Entry]:
        return [Entry()] if (group, name) == ("kvaudit.commands", "elsewhere") else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert cli.main(["elsewhere", "a"]) == 2


def test_a_failure_is_said_as_the_report_module_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["frobnicate", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said == failure(said["error"])


BROKEN = {
    "the command itself": ("kvaudit.auditor.commands.gate", "gate"),
    "what it stands on": ("httpcore", "gate"),
    "what redacts a defect": ("kvaudit.auditor.transport", "probe"),
    "what builds a report": ("kvaudit.auditor.report", "gate"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_part_that_cannot_be_imported_is_3_and_a_report(case: str) -> None:
    """In a process of its own: Python would leave with 1, which a pipeline reads as *fail*."""
    missing, command = BROKEN[case]
    code = f"import sys; sys.modules[{missing!r}] = None; from kvaudit import cli; "
    code += f"sys.exit(cli.main([{command!r}, '--node', 'http://127.0.0.1:9', '--json']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["verdict"] == "error"
    assert "Traceback" not in done.stderr
    assert missing in done.stderr


def test_a_defect_is_3_even_where_its_text_cannot_be_redacted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(arguments: object) -> int:
        raise ValueError("sk-secret")

    monkeypatch.setattr(cli, "_find", lambda name: command)
    monkeypatch.setitem(sys.modules, "kvaudit.auditor.transport", None)
    assert cli.main(["anything", "--json"]) == 3
    out, err = capsys.readouterr()
    assert "ValueError" in json.loads(out)["error"]
    assert "sk-secret" not in out + err


def test_a_reader_that_leaves_is_3_not_python_s_120() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kvaudit.cli", "advisories", "list"],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=2 * PATIENCE,
    )
    os.close(write)
    assert done.returncode == 3, done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_the_installed_script_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvaudit.cli", "gate", "--frobnicate"],
        capture_output=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == 3
