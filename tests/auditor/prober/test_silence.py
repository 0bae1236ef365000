"""A prompt that stops a server from answering, told from one that takes its time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvaudit.auditor import checks as registry
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.prober import NetworkProber
from kvaudit.auditor.prober.silence import BESIDE
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import N
from tests.auditor.prober.test_probe_set import CONSENT, audited

MEETING = ("rejection", "coherence", "canary", "prefill")
"""Checks that send prompts of the lengths that wedge; the others stay below."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Outcome | None]]:
    """Every request: tokens, and how it ended (None: it was cut off)."""
    seen: list[tuple[int, Outcome | None]] = []
    original = NetworkProber.ask

    async def ask(self: NetworkProber, tenant: str, prompt: Any, **more: Any) -> Any:
        place = len(seen)
        seen.append((prompt.tokens, None))
        reply = await original(self, tenant, prompt, **more)
        seen[place] = (prompt.tokens, reply.outcome)
        return reply

    monkeypatch.setattr(NetworkProber, "ask", ask)
    return seen


@pytest.mark.parametrize("fault", ["wedge", "wedge_decode", "wedge_at_limit"])
@pytest.mark.parametrize("check", MEETING)
def test_after_this_prompt_nothing_answered_any_more(sent: Any, check: str, fault: str) -> None:

    _, (result, after) = audited([check, "accounting"], [fault])
    assert (result.verdict, result.severity) == (Verdict.FAIL, "high")
    assert "nothing answered any more" in result.summary
    assert result.measures["wedged"] == "yes"
    assert result.measures["wedged_tokens"] >= N - 300
    assert "no prompt of" in result.next
    assert "again" not in result.next.lower().replace("again, in no check", "")
    # The whole run ends there.
    assert after.verdict is Verdict.INCONCLUSIVE
    assert "nothing answered any more" in after.summary
    assert "run it again" not in after.next
    long = [
        place
        for place, (tokens, outcome) in enumerate(sent)
        if outcome is Outcome.TIMED_OUT and tokens > N - 300
    ]
    assert len(long) == 1
    # Only short requests beside it; where they are silent as well, one is enough.
    after_it = [tokens for tokens, _ in sent[long[0] + 1 :]]
    assert set(after_it) == {256}
    assert fault == "wedge_decode" or len(after_it) == 1


def test_the_short_request_was_answered_before(sent: Any) -> None:
    _, (result,) = audited(["rejection"], ["wedge"])
    assert "had been answered in" in result.summary
    assert any(tokens == 256 and outcome is Outcome.ANSWERED for tokens, outcome in sent)


def test_a_server_that_goes_on_within_the_wait_is_slow_and_not_stopped(sent: Any) -> None:
    _, (result, after) = audited(["rejection", "accounting"], ["wedge_for_minutes"])
    assert result.verdict is Verdict.PASS
    assert result.warn
    assert "slow, not stopped" in result.summary
    assert "wedged" not in result.measures
    assert after.verdict is Verdict.PASS


def test_a_slow_prompt_beside_which_others_are_answered_is_only_slow(monkeypatch: Any) -> None:
    """The long prompt alone takes minutes."""
    original = NetworkProber._send

    async def send(self: NetworkProber, tenant: str, prompt: Any, *more: Any) -> Any:
        if prompt.tokens > N - 300:
            await self.sleep(BESIDE * 5)
        return await original(self, tenant, prompt, *more)

    monkeypatch.setattr(NetworkProber, "_send", send)
    _, (result,) = audited(["rejection"], ["none"])
    assert result.verdict is Verdict.PASS
    assert "wedged" not in result.measures
    assert "slow" not in result.summary


def test_a_run_that_must_stop_first_says_what_it_suspects(sent: Any) -> None:
    """The deadline passes while the two are silent: nothing is proven, and nothing is forgotten."""
    _, results = audited(["rejection", "canary"], ["wedge"], seconds=200.0)
    assert results[0].verdict is Verdict.INCONCLUSIVE
    assert results[0].measures["wedged"] == "suspected"
    assert "may have stopped the server" in results[0].summary
    assert "no prompt of" in results[0].next
    assert results[1].verdict in (Verdict.INCONCLUSIVE, Verdict.ERROR)


@pytest.mark.parametrize("check", [check for check in registry.ACTIVE if check not in (*MEETING, "session")])
def test_checks_below_the_length_pass_it_by(sent: Any, check: str) -> None:
    _, (result,) = audited([check], ["wedge"], permission=replace(CONSENT, prompt_tokens=400_000))
    assert "wedged" not in result.measures
    assert len(sent) > 20, "it asked"
    assert max(tokens for tokens, _ in sent) < N - 8
