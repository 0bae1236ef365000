"""Counts: what was sent against what the usage block says."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.checks.accounting.probe import AccountingSeen, tolerance
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import (
    BUSY,
    DENIED,
    EMPTY,
    UNANSWERED,
    A,
    B,
    C,
    in_lab,
    judged,
    nothing_asked,
    seen_as,
)

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR


def account(*changed: dict[str, Any] | Any, **more: Any) -> AccountingSeen:
    """20 clean prompts, the first of them changed."""
    seen = AccountingSeen(tolerance={("", A): 16, ("", B): 0})
    for number in range(20):
        change = changed[number] if number < len(changed) else {}
        if isinstance(change, dict):
            seen.trials.append(seen_as("unique", 400 + number, repeat=number, **change))
        else:
            seen.trials.append(seen_as("unique", 400 + number, change, repeat=number))
    for name, value in more.items():
        setattr(seen, name, value)
    return seen


@pytest.mark.parametrize(
    ("seen", "verdict", "said"),
    [
        (account(), PASS, "All 20"),
        (account({"prompt_tokens": 402}), PASS, ""),
        (account({"prompt_tokens": 403}), FAIL, "counted as 403"),
        (account({"prompt_tokens": 1}), FAIL, "counted as 1 "),
        (account({"cached_tokens": 16}), PASS, ""),
        (account({"cached_tokens": 17}), FAIL, "17 tokens of a prompt that nobody ever sent"),
        (account({"cached_tokens": 16, "tenant": B}), FAIL, "16 tokens"),
        (account({"cached_tokens": 500}), ERROR, "more cached tokens than prompt tokens"),
        (account(*[{"cached_tokens": None}] * 20), OPEN, "unknown is not zero"),
        (account({"cached_tokens": None}), OPEN, "not reported"),
        (account({"prompt_tokens": None}), OPEN, "how many tokens it read"),
        (account(BUSY, BUSY), PASS, "2 void"),
        (account(EMPTY), OPEN, "1 of 20 prompts"),
        (account(BUSY, BUSY, UNANSWERED), OPEN, "Only 17 of 20"),
        (account(DENIED), ERROR, "401"),
        (account(stopped="The budget is used up."), OPEN, "budget"),
        (account(trials=[]), OPEN, "Only 0 of 20"),
        (account({"cached_tokens": 48}, *[BUSY] * 10), FAIL, "48 tokens"),
    ],
)
def test_verdicts(seen: AccountingSeen, verdict: Verdict, said: str) -> None:
    result = judged("accounting", seen)
    assert result.verdict is verdict, result.summary
    assert said in result.summary
    assert "clears no other check" in result.does_not_prove


def test_the_flags_that_show_cached_tokens_are_named_by_engine() -> None:
    advice = judged("accounting", account({"cached_tokens": None})).next
    assert advice == "Start SGLang with --enable-cache-report, vLLM with --enable-prompt-tokens-details."


@pytest.mark.parametrize(
    ("added", "page", "read", "allowed"),
    [
        (0, 64, True, 0),
        (11, 64, True, 64),
        (70, 64, True, 128),
        (0, 16, True, 0),
        (0, 1, True, 8),
        (0, 64, False, 64),
    ],
)
def test_what_a_new_prompt_may_honestly_show(added: int, page: int, read: bool, allowed: int) -> None:
    """The template, rounded up to a page; fine or unknown pages may hold a first word sent before."""
    assert tolerance(added, Limits(None, C, None, page, read)) == allowed


def test_nobody_to_ask_as_is_no_pass() -> None:
    assert nothing_asked("accounting").verdict is OPEN


@pytest.mark.parametrize(
    ("fault", "options", "verdict"),
    [
        ("none", {}, PASS),
        ("stale_pages", {}, PASS),  # every count was right in the incident
        ("phantom_cache", {}, FAIL),
        ("shared_prefix", {}, PASS),
        ("none", {"cache_report": False}, OPEN),
    ],
)
def test_engines(fault: str, options: dict[str, Any], verdict: Verdict) -> None:
    result, seen, _ = in_lab("accounting", [fault], **options)
    assert result.verdict is verdict, result.summary
    assert {one.tenant for one in seen.trials} == {A, B}


def test_prompts_differ_from_their_first_token_on_and_between_runs() -> None:
    from kvaudit.auditor.text.markers import seeded
    from kvaudit.auditor.text.prompts import draw_leads

    first, second = draw_leads(seeded(1), 20), draw_leads(seeded(2), 20)
    assert len({lead[0] for lead in first}) == 20
    assert not set(first) & set(second)
