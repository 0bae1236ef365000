"""The boundary: a table of ladders and their verdicts, and the ladder against engines that go wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvaudit.auditor import checks as registry
from kvaudit.auditor.checks.contract import Audit, History, Rules
from kvaudit.auditor.checks.misses import Compared, Miss
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Reply, Trace
from kvaudit.auditor.checks.rejection.probe import LadderSeen
from kvaudit.auditor.checks.rejection.verdict import stranded
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import (
    ANSWERED,
    BROKEN,
    BUSY,
    CUT,
    DENIED,
    EMPTY,
    FAILED,
    REFUSED,
    TIMED_OUT,
    TOO_LARGE,
    UNANSWERED,
    A,
    C,
    N,
    in_lab,
    judged,
    nothing_asked,
    seen_as,
)
from tests.auditor.checks.scripted import Asked, Script, Scripted

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR
HIDDEN, GUARDED = Outcome.HIDDEN, Outcome.GUARDED
BELOW = {"N-64": N - 64, "N-2": N - 2}
ABOVE = {"N+1": N + 1, "N+page": N + 16, "C-1": C - 1, "C": C, "C+1": C + 1}


def controls(missed: int = 0, of: int = 30) -> list[Trial]:
    return [seen_as("control", 256, nonce=number >= missed) for number in range(of)]


def ladder(**rungs: Any) -> LadderSeen:
    """A clean ladder, with 30 short prompts beside it; ``N=[...]`` replaces the trials of a rung, given as outcome or
    (outcome, changes)."""
    usual: dict[str, list[Any]] = {"N-1": [ANSWERED] * 3, "N": [REFUSED] * 3, "midpoint": [REFUSED] * 3}
    usual |= {name: [ANSWERED] for name in BELOW} | {name: [REFUSED] for name in ABOVE}
    tokens = {"N-1": N - 1, "N": N, "midpoint": (N + C) // 2, "edge+1": N + 5, **BELOW, **ABOVE}
    seen = LadderSeen(N, C)
    seen.misses.of("").control_asked, seen.misses.of("").controls = True, controls()
    for name, trials in {**usual, **{key.replace("_", "-"): value for key, value in rungs.items()}}.items():
        for repeat, one in enumerate(trials):
            outcome, changes = one if isinstance(one, tuple) else (one, {})
            seen.trials.append(seen_as(name, tokens[name], outcome, repeat=repeat, **changes))
            seen.misses.note(seen.trials[-1])
            if seen.trials[-1].wrong:
                seen.misses.of("").add(Miss(seen.trials[-1], True, True))
    return seen


WRONG = (ANSWERED, {"nonce": False})
SHORT = (ANSWERED, {"prompt_tokens": 5_000})
LATE = (FAILED, {"error": "request timed out after 300s in KVPoll.WaitingForInput", "seconds": 300.0})
OTHERS = (
    ANSWERED,
    {"nonce": False, "traces": (Trace("marker", "text", "b", "a", ("w",) * 4, 4, N, verified=True),)},
)
GUESS = (ANSWERED, {"nonce": False, "traces": (Trace("nonce", "text", "b", "a", ("w",), 1, N),)})
NO_ROOM = (ANSWERED, {"nonce": None, "cramped": True})
UNCOUNTED = (ANSWERED, {"nonce": None, "cramped": True, "prompt_tokens": None})
CUT_SHORT = (ANSWERED, {"nonce": None, "cramped": True, "prompt_tokens": 4_800})
NEVER_SHOWN: dict[str, Any] = {"N_1": [NO_ROOM] * 3, "N_64": [NO_ROOM], "N_2": [NO_ROOM]}


@pytest.mark.parametrize(
    ("rungs", "verdict", "severity", "warn", "said"),
    [
        ({}, PASS, "", False, "refused with an error that names the length"),
        ({"N": [WRONG] * 3}, FAIL, "critical", False, "without their own nonce"),
        ({"N": [WRONG, WRONG, ANSWERED]}, FAIL, "critical", False, "2 of 3"),
        ({"N": [WRONG, WRONG, REFUSED]}, FAIL, "critical", False, "2 of 3"),
        ({"N_64": [WRONG, WRONG, WRONG]}, OPEN, "", True, "5,258 tokens"),  # a weak model does that as well
        ({"N_64": [OTHERS, OTHERS, WRONG]}, FAIL, "critical", False, "5,258 tokens"),
        ({"N_64": [GUESS, GUESS, WRONG]}, OPEN, "", True, "5,258 tokens"),
        ({"N": [WRONG, REFUSED, REFUSED]}, OPEN, "", True, "1 of 3"),
        ({"N_64": [WRONG, ANSWERED, ANSWERED]}, PASS, "", False, "1 of 7 answers missed their nonce"),
        ({"N_64": [WRONG, WRONG, *[ANSWERED] * 8]}, OPEN, "", True, "2 of 14"),
        ({"N": [HIDDEN] * 3}, FAIL, "medium", False, "hidden in a 200"),
        ({"N": [HIDDEN, REFUSED, REFUSED]}, PASS, "", False, ""),
        ({"N_64": [HIDDEN]}, OPEN, "", True, "sentence of an error"),
        ({"N_64": [EMPTY, EMPTY, ANSWERED]}, FAIL, "medium", False, "which this target accepts"),
        ({"N_64": [EMPTY, ANSWERED, ANSWERED]}, OPEN, "", True, "no text"),
        ({"N": [GUARDED] * 3}, OPEN, "", False, "A guardrail answered 3 of 16"),
        ({"N_64": [GUARDED]}, PASS, "", False, "1 void (1 guardrail)"),
        ({"N_64": [FAILED] * 3}, OPEN, "", True, "5,258 tokens and more end in server errors (5xx): 500"),
        ({"N": [WRONG, *[REFUSED] * 9]}, OPEN, "", True, "1 of 10"),
        (NEVER_SHOWN, OPEN, "", False, "No prompt near the limit of 5,322 tokens gave its nonce"),
        (
            {**NEVER_SHOWN, "N_64": [ANSWERED]},
            PASS,
            "",
            False,
            "up to 5,258 tokens answered their own nonce, up to 5,321",
        ),
        (
            {"N+1": [UNCOUNTED], "C": [UNCOUNTED], "C+1": [UNCOUNTED]},
            OPEN,
            "",
            True,
            "1 of 1 prompts of 5,323 tokens",
        ),
        (
            {"midpoint": [NO_ROOM] * 3},
            OPEN,
            "",
            True,
            "3 of 3 prompts of 6,757 tokens",
        ),  # counts were right then too
        ({"N+1": [CUT_SHORT], "C+1": [CUT_SHORT]}, FAIL, "medium", False, "4,800 tokens were counted"),
        ({"N+1": [CUT_SHORT]}, OPEN, "", True, "no nonce that shows"),
        ({"N+1": [SHORT]}, OPEN, "", True, "counted as 5,000: only once"),
        ({"N": [ANSWERED] * 3, "N+1": [ANSWERED], "N+page": [ANSWERED]}, PASS, "", False, "5,338"),
        ({"N": [CUT] * 2 + [REFUSED]}, FAIL, "medium", False, "at most one token"),
        ({"N": [CUT, REFUSED, REFUSED]}, PASS, "", False, ""),
        ({"N": [EMPTY] * 3}, FAIL, "medium", False, "no text"),
        ({"N": [TIMED_OUT] * 2}, FAIL, "medium", False, "never answered"),
        ({"N": [LATE] * 2}, FAIL, "medium", False, "300 s"),
        ({"N_64": [TIMED_OUT] * 2}, OPEN, "", False, "void"),
        ({"N": [SHORT] * 3}, FAIL, "medium", False, "shortens long prompts"),
        ({"N": [FAILED] * 3}, OPEN, "", True, "5xx"),
        ({"N": [FAILED, FAILED, REFUSED]}, OPEN, "", True, "5xx"),
        ({"N": [BUSY] * 3}, OPEN, "", False, "void"),
        ({"N": [BROKEN] * 3}, OPEN, "", False, "void"),
        ({"N_64": [TOO_LARGE]}, OPEN, "", False, "413"),
        ({"C": [TOO_LARGE]}, PASS, "", False, ""),
        ({"N": [UNANSWERED] * 3, "midpoint": [UNANSWERED] * 3}, OPEN, "", False, "void"),
        (
            {"N_1": [UNANSWERED] * 3, "N_64": [UNANSWERED], "N_2": [UNANSWERED]},
            OPEN,
            "",
            False,
            "No prompt below",
        ),
        (
            {name: [UNANSWERED] for name in ABOVE} | {"N": [UNANSWERED], "midpoint": [UNANSWERED]},
            OPEN,
            "",
            False,
            "No length was seen refused",
        ),
        ({"N_1": [REFUSED] * 3}, OPEN, "", False, "No length was seen refused"),
        ({"N_1": [NO_ROOM] * 3}, PASS, "", False, ""),
        (
            {"N_1": [(ANSWERED, {"nonce": None, "cramped": True, "prompt_tokens": 1})] * 3},
            OPEN,
            "",
            False,
            "",
        ),
        (
            {"N_1": [(ANSWERED, {"nonce": None, "cramped": True, "prompt_tokens": None})] * 3},
            OPEN,
            "",
            False,
            "",
        ),
        ({"C": [ANSWERED]}, OPEN, "", True, "two replicas"),
        ({"N_1": [DENIED]}, ERROR, "", False, "401"),
        ({"N": [WRONG, WRONG, DENIED]}, FAIL, "critical", False, "2 of 3"),  # a leak that was seen stands
        ({"N": [HIDDEN, HIDDEN, DENIED]}, FAIL, "medium", False, "hidden in a 200"),
    ],
)
def test_ladders(rungs: Any, verdict: Verdict, severity: str, warn: bool, said: str) -> None:
    result = judged("rejection", ladder(**rungs))
    assert (result.verdict, result.severity, result.warn) == (verdict, severity, warn), result.summary
    assert said in result.summary
    assert result.next
    assert result.does_not_prove


def test_a_refusal_counts_only_where_the_last_accepted_length_was_read_in_the_same_repeat() -> None:
    """A wrong parameter must not turn the ladder green."""
    seen = ladder(N_1=[UNANSWERED, ANSWERED, ANSWERED])
    rungs = {rung["name"]: rung["refused"] for rung in judged("rejection", seen).measures["rungs"]}
    assert rungs["N"] == 2
    assert rungs["C"] == 0  # asked in the repeat whose N-1 was void


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"withheld": True, "trials": []}, OPEN, "consent"),
        ({"stopped": "The budget is used up."}, OPEN, "budget"),
        ({"first_rejected": None, "trials": []}, OPEN, "was not found"),
        ({"unhealthy": "An ordinary request is not answered any more."}, FAIL, "did not recover"),
        ({"trials": []}, OPEN, "No prompt below"),
    ],
)
def test_what_keeps_a_ladder_from_passing(changes: Any, verdict: Verdict, said: str) -> None:
    seen = ladder()
    for name, value in changes.items():
        setattr(seen, name, value)
    result = judged("rejection", seen)
    assert result.verdict is verdict
    assert said in result.summary


@pytest.mark.parametrize(
    ("short", "at_limit", "verdict"),
    [
        (controls(), [WRONG] * 2, FAIL),
        (controls(of=0), [WRONG] * 3, OPEN),
        (controls(of=1), [WRONG] * 2, OPEN),
        (controls(29), [WRONG] * 10, OPEN),  # a model, or a route, that reads nothing
        (controls(3), [WRONG] * 2, OPEN),
        (controls(3), [WRONG] * 10, FAIL),
        (controls(29), [OTHERS] * 2, FAIL),  # others' words are no weakness
    ],
)
def test_a_leak_at_the_limit_needs_short_prompts_that_are_read(
    short: Any, at_limit: Any, verdict: Verdict
) -> None:
    seen = ladder(N=at_limit)
    seen.misses.of("").controls = short
    assert judged("rejection", seen).verdict is verdict


def test_a_length_that_is_known_to_be_missed_says_so_where_the_budget_ended_the_climb() -> None:
    seen = ladder()
    seen.stopped = "The budget is used up."
    sides = ([seen_as("N-64", N - 64, nonce=read) for _ in range(10)] for read in (False, True))
    seen.misses.of("").compared["N-64"] = Compared(N - 64, *sides)
    result = judged("rejection", seen)
    assert result.verdict is OPEN
    assert "10 of 10 answers did not give" in result.summary


def test_a_refused_key_is_no_dead_server() -> None:
    seen = ladder(N=[REFUSED, DENIED])
    seen.unhealthy = "An ordinary request is not answered any more: denied"
    assert judged("rejection", seen).verdict is ERROR


def test_a_count_that_is_never_right_shortens_nothing() -> None:
    """A gateway that counts words."""
    words = {"prompt_tokens": 3_000}
    seen = ladder(**{name: [(ANSWERED, words)] * 3 for name in ("N_1", "N_64", "N_2", "N")})
    assert judged("rejection", seen).verdict is OPEN


def test_a_hit_survives_any_number_of_voids_and_a_stop() -> None:
    seen = ladder(N=[WRONG] * 3, N_1=[BUSY] * 3, midpoint=[TIMED_OUT] * 3)
    seen.stopped = "Stopped at 5,322 tokens."
    assert judged("rejection", seen).severity == "critical"


@pytest.mark.parametrize(
    ("before", "after", "earlier", "verdict", "warn"),
    [
        ({"0": 0.0}, {"0": 0.0}, (), PASS, False),
        ({"0": 1000.0}, {"0": 1015.0}, (), PASS, False),
        ({"0": 0.0}, {"0": 2048.0}, (), OPEN, True),
        ({"0": 0.1}, {"0": 0.2}, (), OPEN, True),
        ({"0": 0.1}, {"0": 0.1004}, (), PASS, False),
        ({"0": 0.0, "1": 9_000.0}, {"0": 256.0, "1": 8_000.0}, (), OPEN, True),
        ({"0": 4000.0}, {"0": 6000.0}, (2000.0, 4000.0), FAIL, False),
        ({"0": 4000.0}, {"0": 6000.0}, (2000.0, 7000.0), OPEN, True),
        ({"0": 6000.0}, {"0": 6000.0}, (2000.0, 4000.0), PASS, False),
        ({}, {}, (2000.0, 4000.0), PASS, False),
    ],
)
def test_a_pool_that_does_not_come_back(
    before: Any, after: Any, earlier: Any, verdict: Verdict, warn: bool
) -> None:
    seen = ladder()
    seen.pool_before, seen.pool_after, seen.earlier_use = before, after, earlier
    result = judged("rejection", seen)
    assert (result.verdict, result.warn) == (verdict, warn), result.summary
    assert result.measures["pool_use_after"] == (sum(after.values()) if after else None)


def test_pool_use_that_is_not_shown_is_unknown() -> None:
    assert stranded(ladder()) is None


def test_nobody_to_ask_as_is_no_pass() -> None:
    assert nothing_asked("rejection").verdict is OPEN
    assert "the entry refused" in nothing_asked("rejection", "The entry refused the key.").summary


# Against the lab


@pytest.mark.parametrize(
    ("fault", "verdict", "severity"),
    [
        ("none", PASS, ""),
        ("stale_pages", FAIL, "critical"),
        ("fixed_0_5_20", FAIL, "medium"),
        ("fixed_0_5_21", PASS, ""),
        ("status_200_length", FAIL, "medium"),
        ("empty_200", FAIL, "medium"),
        ("sse_error_in_200", PASS, ""),
        ("reject_500", OPEN, ""),
        ("wedge_at_limit", FAIL, "high"),
        ("pool_stranded", OPEN, ""),
        ("auto_truncate", FAIL, "critical"),
    ],
)
def test_engines(fault: str, verdict: Verdict, severity: str) -> None:
    result, seen, _ = in_lab("rejection", [fault])
    assert (result.verdict, result.severity) == (verdict, severity), result.summary
    assert all(one.name and one.tokens for one in seen.trials)


def test_three_runs_that_rise_fail() -> None:
    history = History(pool_use_after=(100.0, 200.0))
    result, _, _ = in_lab("rejection", ["pool_stranded"], history=history)
    assert (result.verdict, result.severity) == (FAIL, "high")


def test_a_leak_ends_the_ladder_at_once() -> None:
    _, seen, _ = in_lab("rejection", ["stale_pages"])
    assert max(one.tokens for one in seen.trials) <= N + 1
    assert sum(one.wrong for one in seen.trials) <= 4  # two prompts, each with its identical repeat


def climbed_by(script: Script, context: int | None = None) -> Any:
    """The verdict over a ladder whose answers a script gives; prompts of N and more are refused unless it answers.
    ``context``: prompt and answer together are no longer."""

    class Prober(Scripted):
        consent, scope = True, "one node"

        async def counters(self) -> dict[str, float]:
            return {}

        def now(self) -> float:
            return 0.0

        def room(self, prompt_tokens: int, wanted: int) -> int:
            return max(1, min(wanted, context - prompt_tokens)) if context else wanted

    prober: Any = Prober(script, Limits(N, C, 5_328, 16, True), (A,))
    given = Audit("glm", [], prober=prober)
    check = registry.get("rejection")
    return check.judge(asyncio.run(check.observe(given)), given)


def refusing(asked: Asked, below: Reply | str | None = None) -> Reply | str:
    if asked.prompt.tokens >= N:
        return Reply(REFUSED, 400, error="too long", tokens_sent=asked.prompt.tokens)
    return below or asked.right


@pytest.mark.parametrize(
    ("script", "verdict", "severity", "said"),
    [
        (refusing, PASS, "", ""),
        # a model that was trained to 4,000 tokens babbles beyond (redteam cliff): no leak
        (lambda a: refusing(a, " the of and 1" if a.prompt.tokens > 4_000 else None), OPEN, "", "10 of 10 answers"),
        # a reasoning model (redteam thinking_chat)
        (lambda a: refusing(a, None if a.max_tokens >= 90 else "Okay, the user"), PASS, "", ""),
        (lambda a: " the of and 1", OPEN, "", "not answered with their nonce either, in up to 1,024 tokens"),
        (lambda a: Reply(FAILED, 500, error="out of memory"), OPEN, "", "Every completion answers 500: out of memory"),
        (lambda a: Reply(EMPTY, 200), FAIL, "medium", "without text"),
        (
            lambda a: Reply(FAILED, 500, error="no memory", tokens_sent=9) if a.prompt.tokens > 4_000 else a.right,
            OPEN,
            "",
            "tokens and more end in server errors (5xx): 500, no memory",
        ),
    ],
)  # fmt: skip
def test_what_is_no_leak(script: Script, verdict: Verdict, severity: str, said: str) -> None:
    result = climbed_by(script)
    assert (result.verdict, result.severity) == (verdict, severity), result.summary
    assert said in result.summary


def thinking(asked: Asked, needed: int = 90) -> Reply | str:
    return refusing(asked, None if asked.max_tokens >= needed else "Okay, the user")


def test_a_model_that_thinks_first_shows_near_the_limit_what_it_read() -> None:
    """Redteam thinking_chat: from N-64 on there is no room for one nonce, and counts were right in the incident too."""
    result = climbed_by(thinking, context=N + 6)
    rows = {row["name"]: row["with_nonce"] for row in result.measures["rungs"]}
    assert (result.verdict, rows["N-room"], rows["N-1"]) == (PASS, 1, 0), result.summary
    assert (
        f"Prompts up to {N - 128:,} tokens answered their own nonce, up to {N - 1:,} tokens" in result.summary
    )
    silent = climbed_by(lambda a: thinking(a, needed=90 if a.prompt.tokens < 4_000 else 9_999), context=N + 6)
    assert silent.verdict is OPEN


@pytest.mark.parametrize(("answered", "verdict"), [(1, OPEN), (2, OPEN), (3, FAIL), (9, FAIL)])
def test_the_limit_answered_without_its_nonce(answered: int, verdict: Verdict) -> None:
    """One replica of sixteen does not refuse (redteam above_limit): once, or one prompt twice, is no pass; two prompts
    are a leak."""
    left = [answered]

    def script(asked: Asked) -> Reply | str:
        if asked.prompt.tokens >= N and left[0]:
            left[0] -= 1
            return " Mr. Example, account"
        return refusing(asked)

    assert climbed_by(script).verdict is verdict


def test_without_consent_nothing_near_the_limit_is_sent() -> None:
    result, seen, prober = in_lab("rejection", ["none"], permission=Permission(consent=False, seed=1))
    assert result.verdict is OPEN
    assert "consent" in result.summary
    assert seen.trials == []
    assert prober.spent.prompt_tokens < 6_000  # the calibration


def test_an_unknown_limit_is_searched() -> None:
    result, seen, prober = in_lab("rejection", ["hidden_pool"])
    assert seen.located
    assert abs(seen.first_rejected - N) <= 64
    assert prober.limits.first_rejected == seen.first_rejected  # checks that follow use it
    assert result.verdict is not FAIL


def test_a_leak_at_an_unknown_limit_is_found_by_the_search() -> None:
    result, _, _ = in_lab("rejection", ["stale_pages", "hidden_pool"])
    assert (result.verdict, result.severity) == (FAIL, "critical")


def test_a_declared_edge_limit_must_refuse() -> None:
    """Nothing stands before this engine, so prompts beyond the declared limit are answered."""
    rules = Rules(edge_limit=4_000)
    result, _, _ = in_lab("rejection", ["none"], target={"rules": rules})
    assert result.measures["edge_limit_refused"] is False
    result, _, _ = in_lab("rejection", ["none"], target={"rules": Rules(edge_limit=N - 1)})
    assert result.measures["edge_limit_refused"] is True


def test_the_dry_run_says_what_it_costs() -> None:
    _, seen, prober = in_lab("rejection", ["none"])
    from kvaudit.auditor.checks.rejection.probe import RejectionProbe

    plan = RejectionProbe().plan(prober)
    assert plan.prompt_tokens == sum(one.tokens for one in seen.trials if one.tokens < N)
    assert plan.requests >= len(seen.trials)
    prober.limits = Limits(None, C, None)
    assert RejectionProbe().plan(prober).prompt_tokens > 0
    prober.consent = False
    assert RejectionProbe().plan(prober).requests == 0
