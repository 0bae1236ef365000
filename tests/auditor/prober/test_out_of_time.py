"""A check that runs out of time keeps what it has learnt and says what is missing; never *error*."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kvaudit.auditor.prober import NetworkProber, Permission
from kvaudit.auditor.verdict import Verdict
from tests.auditor.prober.test_probe_set import audited

ASKED_FIRST = 32
"""Requests that are answered: 16 calibrate (two lengths, four ways, two tenants), then a check begins."""

CHECKS = ("accounting", "rejection", "coherence", "canary", "prefill", "prefix", "concurrency")


def hang(monkeypatch: Any, after: int) -> list[int]:
    """Every request after so many hangs, like those of a server that is drained; the short ones of health go on."""
    sent: list[int] = []
    original = NetworkProber._send

    async def send(self: NetworkProber, *given: Any) -> Any:
        sent.append(given[1].tokens)
        if len(sent) > after and given[1].tokens != 256:
            given[-1].heard = self.now() + 1e9  # not about silence: no short request beside it
            await self.sleep(1e6)
        return await original(self, *given)

    monkeypatch.setattr(NetworkProber, "_send", send)
    return sent


@pytest.mark.parametrize("check", CHECKS)
def test_a_request_that_hangs_at_the_deadline_costs_only_itself(monkeypatch: Any, check: str) -> None:
    sent = hang(monkeypatch, after=ASKED_FIRST)
    _, (result,) = audited([check], ["healthy"], seconds=200.0)
    assert len(sent) < 72
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "deadline of 200 s" in result.summary
    assert re.search(r"\d+ of \d+ [a-z (),]+ were done and \d+ (is|are) missing", result.summary), (
        result.summary
    )
    assert "more time" in result.next
    assert result.evidence


@pytest.mark.parametrize("why", ["The window for active audits closed while this ran.", "cancelled"])
def test_a_window_that_closes_and_a_cancellation_cut_a_request_that_hangs(monkeypatch: Any, why: str) -> None:
    sent = hang(monkeypatch, after=ASKED_FIRST)

    def over() -> bool:
        return len(sent) > ASKED_FIRST

    if why == "cancelled":
        _, (result,) = audited(["accounting"], ["healthy"], cancelled=over)
    else:
        permission = Permission(consent=True, seed=7, stopped=lambda: why if over() else "")
        _, (result,) = audited(["accounting"], ["healthy"], permission=permission)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.measures["prompts"] > 10
    assert why in result.summary


def test_what_was_found_by_then_is_a_fail(monkeypatch: Any) -> None:
    hang(monkeypatch, after=ASKED_FIRST)
    _, (result,) = audited(["accounting"], ["phantom_cache"], seconds=200.0)
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("check", ["accounting", "rejection", "coherence", "canary", "prefix", "concurrency"])
def test_where_tokens_ran_out_more_time_would_not_help(check: str) -> None:
    permission = Permission(consent=True, seed=7, prompt_tokens=600)
    _, (result,) = audited([check], ["healthy"], permission=permission)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "more prompt tokens" in result.next


def test_a_canary_with_few_rounds_says_that_tokens_are_missing() -> None:
    permission = Permission(consent=True, seed=7, prompt_tokens=100_000)
    _, (result,) = audited(["canary"], ["healthy"], permission=permission)
    assert "the token ceiling allows" in result.summary
    assert "more prompt tokens" in result.next


def test_a_run_that_ends_before_it_could_ask_says_that_and_no_key_is_missing() -> None:
    permission = Permission(consent=True, seed=7, stopped=lambda: "The window closed.")
    _, (result,) = audited(["rejection"], ["healthy"], permission=permission)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "was not asked: the window closed" in result.summary
    assert "more time" in result.next
    assert "keys" not in result.next
