"""The wheel in environments that hold only what it declares, outside the repository: each command does its work, and
one whose extra is missing says which."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.wheel import Installed
from tests.server.ops.running import READY, free_port, status_of
from tests.waiting import PATIENCE, until

Installer = Callable[..., Installed]

drill = pytest.mark.drill
STATS, LAB, SERVER = ("stats",), ("lab",), ("server", "stats", "lab")


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report that ``--json`` printed."""
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert document["schema"] == "kvaudit.report/1"
    assert document["exit_code"] == done.returncode
    return document


@contextmanager
def a_lab(installed: Installed, *flags: str) -> Iterator[dict[str, Any]]:
    """``kvaudit lab serve`` out of the wheel; gives what it says of itself."""
    log = installed.folder / "lab.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [installed.python.with_name("kvaudit"), "lab", "serve", "--json", *flags],
            cwd=installed.folder,
            env=installed.environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            yield json.loads(line)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
            process.stdout.close()


def flags_of(lab: dict[str, Any], *, entry: bool = False) -> list[str]:
    flags = [flag for node in lab["nodes"] for flag in ("--node", f"{node['role']}={node['url']}")]
    if entry:
        flags += ["--entry", lab["entry"], "--model", lab["model"], "--allow-boundary", "--seed", "7"]
        flags += ["--tenant-a-key-env", "KEY_A", "--tenant-b-key-env", "KEY_B"]
    return flags


def keys_of(lab: dict[str, Any]) -> dict[str, str]:
    return {f"KEY_{letter}": tenant["key"] for letter, tenant in zip("AB", lab["tenants"], strict=False)}


# The fast part: the base installation alone


def test_the_base_installation_says_its_version_and_lists_advisories(installed: Installer) -> None:
    base = installed()
    assert base.run("--version").stdout.startswith("kvaudit ")
    listed = base.run("advisories", "list")
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) > 40


@pytest.mark.parametrize("command", ["gate", "probe"])
def test_a_node_that_is_not_there_is_an_error_in_a_valid_report(installed: Installer, command: str) -> None:
    done = installed().run(command, "--node", f"http://127.0.0.1:{free_port()}", "--json")
    assert done.returncode == 3
    assert report_of(done)["verdict"] == "error"
    assert "Traceback" not in done.stderr


MISSING = {
    "lab faults": "install kvaudit[lab]",
    "lab serve": "install kvaudit[lab]",
    "lab matrix": "install kvaudit[lab]",
    "up": "install kvaudit[server]",
    "ledger verify": "install kvaudit[server]",
}


@pytest.mark.parametrize("command", MISSING)
def test_a_command_whose_extra_is_missing_names_it(installed: Installer, command: str) -> None:
    done = installed().run(*command.split())
    assert done.returncode == 3
    assert MISSING[command] in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, "a sentence, not a traceback"
    if command != "ledger verify":  # which knows no --json
        assert report_of(installed().run(*command.split(), "--json"))["error"] in done.stderr


def test_what_is_installed_comes_from_the_wheel(installed: Installer) -> None:
    base = installed()
    script = "import kvaudit, sys; print(kvaudit.__file__); import importlib.util as u; print(u.find_spec('numpy'))"
    done = subprocess.run(
        [base.python, "-c", script],
        cwd=base.folder,
        env=base.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    where, numpy = done.stdout.splitlines()
    assert Path(where).is_relative_to(base.python.parents[1])
    assert numpy == "None"


# Drills: with a lab to audit, itself out of the wheel


@drill
def test_gate_and_probe_against_a_leaking_lab(installed: Installer) -> None:
    with a_lab(installed(*LAB), "--fault", "stale_pages") as lab:
        for extras in ((), STATS):
            here = installed(*extras)
            gate = here.run("gate", *flags_of(lab), "--json")
            assert gate.returncode == 1, gate.stderr
            assert report_of(gate)["results"][0]["check"] == "pool"
            matched = here.run("advisories", "match", "--engine", lab["engine"], "--version", lab["version"])
            assert matched.returncode in (0, 1, 2), matched.stderr
            assert "Traceback" not in matched.stderr

            leak = here.run("probe", "canary", *flags_of(lab, entry=True), "--json", **keys_of(lab))
            assert leak.returncode == 1, leak.stdout + leak.stderr
            (result,) = report_of(leak)["results"]
            assert (result["check"], result["verdict"]) == ("canary", "fail")


@drill
def test_probe_of_a_healthy_lab_with_and_without_statistics(installed: Installer) -> None:
    """Without statistics the checks that judge by them ask for them; with them they judge, or say honestly that
    this machine was too busy to compare times, which a shared one often is."""
    from kvaudit.auditor.checks import CHECKS
    from kvaudit.auditor.checks.prefix.verdict import DRIFTED

    asked = [check.id for check in CHECKS.values() if not check.opt_in and check.id != "drift"]
    with a_lab(installed(*LAB), "--fault", "healthy") as lab:
        flags = [*flags_of(lab, entry=True), "--json"]
        base = report_of(installed().run("probe", *asked, *flags, **keys_of(lab)))["results"]
        assert [each["check"] for each in base] == asked
        unjudged = {each["check"]: each for each in base if each["verdict"] == "error"}
        assert set(unjudged) == {"prefill", "prefix"}
        assert all("kvaudit[stats]" in each["next"] for each in unjudged.values())
        done = installed(*STATS).run("probe", "prefill", "prefix", *flags, **keys_of(lab))
        full = report_of(done)["results"]
        assert [each["check"] for each in full] == ["prefill", "prefix"]
        unjudged = {each["check"]: each["summary"] for each in full if each["verdict"] == "error"}
        assert unjudged in ({}, {"prefix": DRIFTED})


@drill
def test_the_lab_by_itself(installed: Installer) -> None:
    lab = installed(*LAB)
    faults = lab.run("lab", "faults", "--json")
    assert faults.returncode == 0, faults.stderr
    names = {fault["name"] for fault in json.loads(faults.stdout)}
    assert "stale_pages" in names
    matrix = lab.run(
        "lab", "matrix", "--fault", "stale_pages", "--check", "canary", "--check", "pool", "--check", "prefix"
    )
    assert matrix.returncode == 0, matrix.stdout + matrix.stderr


@drill
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the embedded servers are made for it here")
def test_the_server_runs_from_the_wheel(installed: Installer) -> None:
    """Pages and static files are inside; the state is where it was started."""
    server, port = installed(*SERVER), free_port()
    folder = Path(tempfile.mkdtemp(prefix="kvaudit-wheel-"))
    folder.chmod(0o755)
    output = folder / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [server.python.with_name("kvaudit"), "up", "--no-lab", "--concurrency", "1", "--port", str(port)],
            cwd=folder,
            env=server.environment(KVAUDIT_STATE=str(folder / "var")),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(
            lambda: bool(READY.search(output.read_text())) or process.poll() is not None,
            "the server to be ready",
            2 * PATIENCE,
            about=output.read_text,
        )
        assert process.poll() is None, output.read_text()
        url = f"http://127.0.0.1:{port}"
        assert status_of(url + "/login/") == 200
        manifest = json.loads((folder / "var" / "static" / "staticfiles.json").read_text())["paths"]
        for name in ("css/kvaudit.css", "plotly/plotly-basic.min.js"):
            assert status_of(f"{url}/static/{manifest[name]}") == 200, name
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, re.sub(r"password \S+", "password ...", output.read_text())
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
