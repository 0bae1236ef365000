"""Active checks in a run: the order of safety, harm, pauses, changes meanwhile, and what leaves the process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvaudit.auditor import runner
from kvaudit.auditor.checks.accounting.probe import AccountingProbe
from kvaudit.auditor.checks.asker import CONTROL
from kvaudit.auditor.checks.evidence_source import asked_request
from kvaudit.auditor.checks.prober_protocol import Outcome, Reply
from kvaudit.auditor.prober import NetworkProber, Permission, TokenUsage, probe_set
from kvaudit.auditor.report import build
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.prompts import Contents, draw_nonce
from kvaudit.auditor.verdict import Result, Verdict
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import in_process
from tests.auditor.checks.active import A, B, N, target_of

CONSENT = Permission(consent=True, seed=7)
HEALTH = 256  # tokens of the short ordinary request


def audited(
    checks: list[str],
    faults: list[str],
    *,
    permission: Permission = CONSENT,
    meddle: Callable[[Any], None] = lambda lab: None,
    target: dict[str, Any] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    seconds: float = 20_000,
    **options: Any,
) -> tuple[list[Any], list[Result]]:
    async def main() -> tuple[list[Any], list[Result]]:
        async with in_process(LabConfig(**options), faults) as lab:
            with lab.joined():
                meddle(lab)
                nodes, results = [], []
                run = runner.run(
                    target_of(lab, **(target or {})),
                    checks,
                    budget=runner.Budget(seconds=seconds),
                    permission=replace(permission, spent=TokenUsage()),  # belongs to one run
                    cancelled=cancelled,
                )
                async for event in run:
                    if isinstance(event, runner.NodeRead):
                        nodes.append(event.node)
                    elif isinstance(event, runner.CheckFinished):
                        results.append(event.result)
                return nodes, results

    return run_virtual(main())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Outcome]]:
    """Every request: tenant, tokens, how it ended."""
    seen: list[tuple[str, int, Outcome]] = []
    original = NetworkProber.ask

    async def ask(self: NetworkProber, tenant: str, prompt: Any, **more: Any) -> Any:
        reply = await original(self, tenant, prompt, **more)
        seen.append((tenant, prompt.tokens, reply.outcome))
        return reply

    monkeypatch.setattr(NetworkProber, "ask", ask)
    return seen


def test_a_clean_target_passes_all_of_a_nightly_set(sent: Any) -> None:
    permission = Permission(consent=True, seed=7, prompt_tokens=120_000)
    _, results = audited(
        ["accounting", "rejection", "coherence", "canary"], ["healthy"], permission=permission
    )
    assert {result.check: result.verdict.value for result in results} == {
        "accounting": "pass",
        "rejection": "pass",
        "coherence": "pass",
        "canary": "inconclusive",  # the ceiling allows a few rounds of 8,000 tokens and a pass needs 20
    }
    assert sent[-1][1] == HEALTH  # a normal answer after every check


def test_a_verified_hit_ends_the_set_and_what_follows_is_not_passed_over(sent: Any) -> None:
    _, results = audited(["rejection", "canary", "coherence"], ["stale_pages"])
    assert [result.verdict for result in results] == [
        Verdict.FAIL,
        Verdict.INCONCLUSIVE,
        Verdict.INCONCLUSIVE,
    ]
    assert "ends the set" in results[1].summary
    above = [one[1] for one in sent if one[1] >= N]
    assert (
        above == [N] + [N + 1] * 4
    )  # whose nonce still comes, then two that miss, each with its identical repeat


def test_a_wedged_engine_ends_the_set(sent: Any) -> None:
    _, results = audited(["rejection", "coherence"], ["wedge_at_limit"])
    assert results[0].severity == "high"
    assert results[1].verdict is Verdict.INCONCLUSIVE


def test_without_consent_nothing_of_the_boundary_is_sent(sent: Any) -> None:
    checks = ["accounting", "rejection", "coherence", "canary", "prefill", "prefix"]
    _, results = audited(checks, ["none"], permission=Permission(seed=7, prompt_tokens=120_000))
    assert max(tokens for _, tokens, _ in sent) < N - 8
    assert {result.check for result in results if result.verdict is Verdict.PASS} <= {"accounting", "prefix"}


@pytest.mark.parametrize("after", [0, 1, 9, 20])
def test_a_pause_takes_effect_before_the_next_request(sent: Any, after: int) -> None:
    def paused() -> str:
        return "Active checks are paused for the fleet." if len(sent) >= after else ""

    _, results = audited(
        ["rejection", "canary"], ["none"], permission=Permission(consent=True, seed=7, stopped=paused)
    )
    assert len(sent) == after
    assert [result.verdict for result in results] == [Verdict.INCONCLUSIVE] * 2
    assert "paused for the fleet" in results[0].summary + results[1].summary


def test_a_cancel_takes_effect_before_the_next_request(sent: Any) -> None:
    _, results = audited(["rejection", "canary"], ["none"], cancelled=lambda: len(sent) >= 9)
    assert len(sent) == 9
    assert not any(result.verdict is Verdict.PASS for result in results)


def test_the_daily_ceiling_holds_over_all_checks(sent: Any) -> None:
    permission = Permission(consent=True, seed=7, daily_left=60_000)
    _, results = audited(["accounting", "rejection", "coherence"], ["none"], permission=permission)
    spent = sum(tokens for _, tokens, outcome in sent if outcome is Outcome.ANSWERED)
    assert spent <= 60_000
    assert any("daily ceiling" in result.summary for result in results)


def test_a_refused_key_is_an_error_and_not_retried(sent: Any) -> None:
    def revoke(lab: Any) -> None:
        lab.deployment.router.tenant_of_key = lambda *anything: None

    from kvaudit.auditor.targets import Credentials, Tenant

    wrong = (Tenant(A, Credentials((("Authorization", "Bearer sk-wrong"),))),)
    _, results = audited(["rejection", "canary"], ["none"], target={"tenants": wrong})
    assert [result.verdict for result in results] == [Verdict.ERROR] * 2
    assert [outcome for _, _, outcome in sent] == [Outcome.DENIED]


def test_a_change_meanwhile_makes_a_result_belong_to_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    labs: list[Any] = []
    original = NetworkProber.ask

    async def ask(self: NetworkProber, tenant: str, prompt: Any, **more: Any) -> Any:
        for node in labs[0].deployment.nodes:
            node.restart_with(9_600)
        return await original(self, tenant, prompt, **more)

    monkeypatch.setattr(NetworkProber, "ask", ask)
    _, results = audited(["accounting"], ["healthy"], meddle=labs.append)
    assert results[0].verdict is Verdict.INCONCLUSIVE
    assert "changed during accounting" in results[0].summary


@pytest.mark.parametrize(("restart", "verdict"), [(True, Verdict.INCONCLUSIVE), (False, Verdict.FAIL)])
def test_a_restart_is_no_harm_done_by_a_prompt(
    restart: bool, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers for longer than health waits, as in a restart of ten minutes (redteam restart): where
    the processes are others afterwards it was one."""
    labs: list[Any] = []
    original, asked = NetworkProber.ask, 0

    async def ask(self: NetworkProber, tenant: str, prompt: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked < 12:
            return await original(self, tenant, prompt, **more)
        if asked == 12 and restart:
            for node in labs[0].deployment.nodes:
                node.restart_with(11_040)
        return Reply(Outcome.FAILED, 502, error="no healthy upstream", tokens_sent=prompt.tokens)

    monkeypatch.setattr(NetworkProber, "ask", ask)
    _, results = audited(["accounting"], ["healthy"], meddle=labs.append)
    assert results[0].verdict is verdict, results[0].summary
    assert ("was restarted during accounting" in results[0].summary) is restart


def leak(prober: NetworkProber) -> None:
    """An answer to tenant a that holds what tenant b was sent."""
    theirs, ours = (
        Contents(draw_marker(seeded(seed)), draw_nonce(seeded(seed)).tail, ()) for seed in (101, 102)
    )
    prober.registry.plant(theirs, B)
    prober.registry.search({"text": str(theirs.marker)}, ours, tenant=A, tokens=900)


def leaks_in_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    original = probe_set.prober_for

    async def prober_for(*given: Any) -> NetworkProber:
        prober = await original(*given)
        leak(prober)
        return prober

    monkeypatch.setattr(probe_set, "prober_for", prober_for)


def leaks_after_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def healthy(self: NetworkProber) -> str:
        leak(self)
        return ""

    monkeypatch.setattr(NetworkProber, "healthy", healthy)


def leaks_before_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(self: Any, seen: Any, audit: Any) -> Result:
        leak(audit.prober)
        raise RuntimeError("a defect")

    monkeypatch.setattr(AccountingProbe, "judge", judge)


@pytest.mark.parametrize(
    "somewhere",
    [leaks_in_calibration, leaks_after_the_check, leaks_before_a_defect],
    ids=lambda it: it.__name__,
)
def test_what_leaks_beside_a_checks_own_requests_decides_as_well(
    somewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    somewhere(monkeypatch)
    _, results = audited(["accounting", "rejection"], ["healthy"])
    assert (results[0].verdict, results[0].severity) == (Verdict.FAIL, "critical"), results[0].summary
    assert "6 of 6 marker words" in results[0].summary
    assert results[1].verdict is Verdict.INCONCLUSIVE
    assert "not asked" in results[1].summary


# Generated text

SECRET = "the account of mrs zebedee is 4711081599221177"


def customers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A customer's long prompts, full of a secret, before every request of ours."""
    labs: list[Any] = []
    original = NetworkProber.ask

    async def ask(self: NetworkProber, tenant: str, prompt: Any, **more: Any) -> Any:
        body = {"model": self.model, "prompt": f"{SECRET}. " * 100, "max_tokens": 16}
        await labs[0].deployment.router.route("customer", "/v1/completions", body)
        return await original(self, tenant, prompt, **more)

    monkeypatch.setattr(NetworkProber, "ask", ask)
    return labs


@pytest.mark.parametrize("check", ["rejection", "canary", "coherence", "prefill"])
def test_a_customers_text_that_leaks_is_sealed_and_nowhere_else(
    check: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    labs, sealed = customers(monkeypatch), []
    caplog.set_level(logging.DEBUG)

    def seal(text: bytes) -> bytes:
        sealed.append(text)
        return b"\x00" * len(text)

    permission = Permission(consent=True, seed=7, seal=seal, prompt_tokens=120_000)
    nodes, results = audited([check], ["stale_pages"], permission=permission, meddle=labs.append)
    pieces = [SECRET[at : at + 8].encode() for at in range(len(SECRET) - 8)]
    assert any(piece in text for piece in pieces for text in sealed), (
        "it never leaked: this test shows nothing"
    )
    said = repr(build("lab", nodes, results)) + repr(results) + caplog.text + "".join(capsys.readouterr())
    for text in (SECRET[8:24], "zebedee", "4711081599221177"):
        assert text not in said
    kinds = set()
    for result in results:
        for item in result.evidence:
            kinds.add(item.kind)
            assert b"zebedee" not in (item.body or b"")
    assert kinds >= {"request", "response", "sealed"}


def test_without_a_seal_generated_text_is_not_kept_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    labs = customers(monkeypatch)
    _, results = audited(["rejection"], ["stale_pages"], meddle=labs.append)
    assert results[0].verdict is Verdict.FAIL
    assert {item.kind for result in results for item in result.evidence} == {"request", "response"}


def test_every_piece_of_evidence_says_which_request_it_belongs_to() -> None:
    _, (result,) = audited(["rejection"], ["none"])
    asked = [asked_request(item.source) for item in result.evidence]
    rungs = [one for one in asked if one.name != CONTROL]
    assert len(rungs) == 2 * sum(rung["trials"] for rung in result.measures["rungs"])
    told = {(one.name, one.tokens, one.ended) for one in asked}
    for rung in result.measures["rungs"]:
        assert (rung["name"], rung["tokens"], "refused" if rung["refused"] else "answered") in told
    assert {one.round for one in asked if one.name == "N"} == {1, 2, 3, 4}  # by each route once


def test_keys_and_salts_are_in_no_result() -> None:
    from kvaudit.auditor.targets import Credentials, Tenant

    tenants = tuple(
        Tenant(name, Credentials((("Authorization", f"Bearer sk-lab-{name}"),)), salt=f"pepper-of-{name}")
        for name in (A, B)
    )
    nodes, results = audited(
        ["accounting", "rejection", "prefix"],
        ["none"],
        permission=Permission(consent=True, seed=7, prompt_tokens=200_000),
        target={"tenants": tenants},
    )
    bodies = b"".join(item.body or b"" for result in results for item in result.evidence)
    said = repr(build("lab", nodes, results)).encode() + repr(results).encode() + bodies
    assert b"pepper-of" not in said
    assert b"sk-lab-tenant" not in said
    assert b'"salted":true' in bodies
