"""The command line as a whole: finding commands, and exit codes when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kvaudit import cli


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


def test_the_installed_script_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvaudit.cli", "gate", "--frobnicate"], capture_output=True, timeout=60
    )
    assert done.returncode == 3
