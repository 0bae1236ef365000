"""``kvaudit probe`` with active checks: the dry run, consent by naming, budgets, and one line per result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvaudit.auditor.commands import probe
from kvaudit.cli import main
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import in_process
from tests.auditor.checks.active import N, target_of


def given(*arguments: str) -> Any:
    return probe.parser().parse_intermixed_args(["--node", "http://127.0.0.1:9", *arguments])


def in_lab(use: Any, *faults: str, **target: Any) -> Any:
    async def main() -> Any:
        async with in_process(LabConfig(), faults or ("none",)) as lab:
            with lab.joined():
                before = lab.deployment.router
                return await use(target_of(lab, **target)), before

    return run_virtual(main())[0]


CHECKS = ("pool", "accounting", "rejection", "coherence", "canary", "prefill", "prefix")


def dry(
    capsys: pytest.CaptureFixture[str], *arguments: str, consent: bool = True, **target: Any
) -> tuple[int, str]:
    asked = given(*CHECKS, "--dry-run", *arguments)
    permission = probe.permission_of(asked, None, consent=True)
    if not consent:
        permission = probe.permission_of(given("--dry-run", *arguments), None, consent=False)
    code = in_lab(lambda where: probe.dry_run([where], CHECKS, asked, permission), **target)
    return code, capsys.readouterr().out


def test_a_dry_run_says_requests_tokens_and_seconds_per_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = dry(capsys, "--json")
    assert code == 0
    rows = {row["check"]: row for row in json.loads(out)["rows"]}
    assert list(rows) == ["accounting", "rejection", "coherence", "canary", "prefill", "prefix"]
    for row in rows.values():
        assert row["requests"] > 0
        assert row["prompt_tokens"] > 0
        assert row["seconds"] > 0
    assert rows["canary"]["rounds"] == 60


def test_a_budget_cuts_the_rounds_that_a_dry_run_shows(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = dry(capsys, "--json", "--budget", "340,000")
    [canary] = [row for row in json.loads(out)["rows"] if row["check"] == "canary"]
    assert 20 <= canary["rounds"] < 60
    assert canary["prompt_tokens"] <= 340_000


def test_without_consent_the_ladder_costs_nothing_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    _, out = dry(capsys, consent=False)
    [line] = [line for line in out.splitlines() if line.startswith("rejection")]
    assert " 0 requests" in line
    assert "consent" in line


def test_a_dry_run_that_cannot_ask_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = dry(capsys, tenants=())
    assert code == 2
    assert "No tenant's key" in out


def test_a_dry_run_sends_no_prompt_of_a_check(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from kvaudit.auditor.prober import NetworkProber

    sent: list[int] = []
    original = NetworkProber.ask

    async def ask(self: Any, tenant: str, prompt: Any, **more: Any) -> Any:
        sent.append(prompt.tokens)
        return await original(self, tenant, prompt, **more)

    monkeypatch.setattr(NetworkProber, "ask", ask)
    dry(capsys)
    assert sent == [256, 384] * 4 * 2  # two short prompts per way and tenant, to find those that work


@pytest.mark.parametrize(
    ("arguments", "consent", "tokens"),
    [
        ((), False, None),
        (("pool",), False, None),
        (("rejection",), True, None),
        (("--allow-boundary",), True, None),
        (("--budget", "1_000"), False, 1_000),
    ],
)
def test_naming_a_check_is_consent(arguments: tuple[str, ...], consent: bool, tokens: int | None) -> None:
    asked = given(*arguments)
    permission = probe.permission_of(asked, None, consent=probe._named(asked))
    assert (permission.consent, permission.prompt_tokens) == (consent, tokens)


@pytest.mark.parametrize("budget", ["0", "-1", "ten", "1e6", "9" * 16])
def test_a_budget_that_is_none_is_refused(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert probe.main(["rejection", "--node", "http://127.0.0.1:9", "--budget", budget]) == 3
    assert "--budget" in capsys.readouterr().err


def test_results_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    asked = given("pool", "rejection", "canary", "--seed", "7")
    document, _ = in_lab(
        lambda where: probe._probe(
            [where], asked.checks, asked, probe.permission_of(asked, None, consent=True), None
        ),
        "stale_pages",
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["FAIL", "pool:"],
        ["FAIL", "rejection:"],
        ["INCONCLUSIVE", "canary:"],
    ]
    assert f"{N + 1:,} tokens" in lines[1]  # at N itself the nonce on the last page still comes
    assert document["exit_code"] == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cannary", "did you mean canary?"),
        ("nothing-like-it", "the checks are pool,"),
        ("sk-live-4f9a8b7c", "could be a key"),
    ],
)
def test_an_unknown_check_is_named_with_the_nearest_one(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert main(["probe", name, "--node", "http://127.0.0.1:9"]) == 3
    out, err = capsys.readouterr()
    assert said in err
    assert "4f9a8b7c" not in out + err
