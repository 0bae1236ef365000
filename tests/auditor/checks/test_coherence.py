"""Own facts asked back: the rule of nonce and needles, and engines that answer from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.checks.coherence.probe import CoherenceSeen, Reading, lengths
from kvaudit.auditor.checks.misses import Miss, Misses
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.text.prompts import Needle, Nonce, together
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import (
    ANSWERED,
    BUSY,
    DENIED,
    LIMITS,
    C,
    N,
    in_lab,
    judged,
    nothing_asked,
    seen_as,
)

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR


def text(name: str, found: int, asked: int, nonce: bool | None = True, **more: Any) -> Reading:
    tokens = {"half": N // 2, "longest": 5_162, "N+1": N + 1}.get(name, 1_024)
    return Reading(name, tokens, more.pop("fresh", 0), nonce, asked, found, **more)


def session(*readings: Reading, baseline: tuple[int, int] = (10, 10), **changes: Any) -> CoherenceSeen:
    seen = CoherenceSeen(LIMITS, {"": text("baseline", *baseline)}, readings=list(readings))
    seen.trials = [seen_as("x", 1_024) for _ in range(30)]
    for name, value in changes.items():
        setattr(seen, name, value)
    return seen


def missing(count: int, above: bool = False) -> MissesByWay:
    """Of twelve nonces so many missed, which are read when repeated."""
    found = Misses(control_asked=True, controls=[seen_as("control", 256)])
    for number in range(12):
        found.note(seen_as("x", 4_000, nonce=number >= count))
    for _ in range(count):
        found.add(Miss(seen_as("x", N + 1, nonce=False), True, True, above))
    return MissesByWay({"": found})


REFUSED_ABOVE = text("N+1", 0, 0, None, refused=True)
CLEAN = (text("half", 2, 2), text("longest", 2, 2), REFUSED_ABOVE)


@pytest.mark.parametrize(
    ("seen", "verdict", "warn", "said"),
    [
        (session(*CLEAN), PASS, False, "5,162 tokens"),
        (session(text("half", 10, 10), text("longest", 10, 10)), PASS, False, "20 of 20 facts"),
        (session(text("N+1", 0, 10, False), text("N+1", 0, 10, False, fresh=1)), FAIL, False, "twice"),
        (session(text("N+1", 2, 10, False), text("N+1", 2, 10, False, fresh=1)), FAIL, False, "2 of 10"),
        (
            session(text("N+1", 3, 10, False), text("N+1", 0, 10, False, fresh=1)),
            OPEN,
            True,
            "not shown which",
        ),
        (session(text("N+1", 0, 10, False), text("N+1", 3, 10, False, fresh=1)), OPEN, True, ""),
        (session(text("N+1", 0, 10, False)), OPEN, True, "0 of 10"),
        (session(text("N+1", 0, 10, True), text("N+1", 0, 10, True, fresh=1)), OPEN, True, ""),
        (session(text("longest", 3, 10, False)), OPEN, True, "the nonce was not"),
        (session(text("longest", 10, 10, False), misses=missing(1)), PASS, False, "1 of 12 answers missed"),
        (session(text("longest", 10, 10, False), misses=missing(2)), OPEN, True, "2 of 12 answers"),
        (
            session(text("N+1", 10, 10, False), misses=missing(1, above=True)),
            OPEN,
            True,
            "which is to be refused",
        ),
        # a model served beyond its training reads nothing there (redteam cliff): no leak is shown
        (session(text("half", 0, 10, False), text("half", 0, 10, False, fresh=1)), OPEN, True, "0 of 10"),
        (session(text("longest", 7, 10)), OPEN, True, "7 of 10"),
        (session(text("longest", 8, 10)), PASS, False, ""),
        (session(text("longest", 5, 10), baseline=(8, 10)), PASS, False, ""),
        (session(text("longest", 4, 10), baseline=(8, 10)), OPEN, True, "4 of 10"),
        (session(*CLEAN, baseline=(7, 10)), OPEN, False, "short facts"),
        (session(*CLEAN, baseline=(5, 5)), OPEN, False, "short facts"),
        (session(text("longest", 1, 1)), OPEN, False, "Too few"),
        (session(text("longest", 2, 2, None)), OPEN, False, "Too few"),
        (session(REFUSED_ABOVE), OPEN, False, "Too few"),
        (session(), OPEN, False, "limit of this target is unknown"),
        (session(*CLEAN, withheld=True), OPEN, False, "consent"),
        (session(*CLEAN, stopped="The budget is used up."), OPEN, False, "budget"),
        (session(*CLEAN, unhealthy="Silent."), FAIL, False, "no longer healthy"),
        (session(*CLEAN, trials=[seen_as("x", 9, BUSY)] * 4 + [seen_as("x", 9)] * 30), OPEN, False, "void"),
        (session(*CLEAN, trials=[seen_as("x", 9, BUSY)] * 3 + [seen_as("x", 9)] * 27), PASS, False, "3 void"),
        (session(*CLEAN, trials=[seen_as("x", 9, DENIED)]), ERROR, False, "401"),
    ],
)
def test_verdicts(seen: CoherenceSeen, verdict: Verdict, warn: bool, said: str) -> None:
    result = judged("coherence", seen)
    assert (result.verdict, result.warn) == (verdict, warn), result.summary
    assert said in result.summary
    assert result.does_not_prove


def test_a_text_of_another_length_confirms_nothing() -> None:
    seen = session(text("half", 0, 10, False), text("N+1", 0, 10, False, fresh=1))
    assert judged("coherence", seen).verdict is OPEN


def test_lengths() -> None:
    assert lengths(LIMITS, True) == (("half", N // 2), ("0.9 N", 4_789), ("longest", N - 160), ("N+1", N + 1))
    assert [name for name, _ in lengths(LIMITS, False)] == ["half", "0.9 N", "longest"]
    assert lengths(Limits(None, C, None), True) == ()


def test_one_question_for_all_names_keys_and_no_values() -> None:
    needles = (Needle("K", "cedar", 0.0), Needle("M", "lemon", 0.5))
    asked = together(Nonce("walnut"), needles)
    assert asked.text.endswith("Locker K:")
    assert "cedar" not in asked.text
    assert "lemon" not in asked.text
    listed = " cedar. Locker M: lemon. Code Q: walnut."
    assert all(needle.answered(listed) for needle in needles)
    assert Nonce("walnut").answered(listed)


def test_nobody_to_ask_as_is_no_pass() -> None:
    assert nothing_asked("coherence").verdict is OPEN


# Against the lab


@pytest.mark.parametrize(
    ("fault", "options", "verdict", "severity"),
    [
        ("none", {}, PASS, ""),
        ("stale_pages", {}, FAIL, "critical"),
        ("fixed_0_5_20", {}, PASS, ""),
        ("fixed_0_5_21", {}, PASS, ""),
        ("short_transfer", {"prefill_pool": 16_384}, OPEN, ""),
        ("status_200_length", {}, PASS, ""),
        ("empty_200", {}, PASS, ""),
        ("reject_500", {}, PASS, ""),
        ("quality_drift", {"prefill_pool": 16_384}, None, None),
    ],
)
def test_engines(fault: str, options: dict[str, Any], verdict: Verdict | None, severity: str) -> None:
    result, seen, _ = in_lab("coherence", [fault], **options)
    if verdict is None:
        assert result.severity != "critical", result.summary  # a weak model is no leak
        return
    assert (result.verdict, result.severity) == (verdict, severity), result.summary
    assert [one.nonce for one in seen.baselines.values()] == [True] * 4


def test_three_prompts_per_accepted_length_and_one_above_the_limit() -> None:
    _, seen, _ = in_lab("coherence", ["none"])
    asked = {
        name: sum(one.name == name for one in seen.trials) for name in ("half", "0.9 N", "longest", "N+1")
    }
    assert asked == {"half": 3, "0.9 N": 3, "longest": 3, "N+1": 4}  # one by each route


def test_a_model_that_goes_through_a_list_is_asked_once_per_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instructed model, played by a prober that answers from the needles of the prompt."""
    from dataclasses import replace

    from kvaudit.auditor.prober import NetworkProber

    framed, ask = NetworkProber.framed, NetworkProber.ask
    told: dict[str, str] = {}

    async def remember(self: Any, marker: Any, tokens: int, tail: Any, needles: Any = (), **more: Any) -> Any:
        if needles and "each with its word" in tail.text:
            code = tail.text.split("Code Q: ")[1].split(".")[0]
            told["answer"] = (
                " ".join(f"Locker {needle.key}: {needle.word}." for needle in needles) + f" Code Q: {code}."
            )
        return await framed(self, marker, tokens, tail, needles, **more)

    async def listing(self: Any, tenant: str, prompt: Any, **more: Any) -> Any:
        reply = await ask(self, tenant, prompt, **more)
        said = told.pop("answer", "")
        return replace(reply, text=said) if said and reply.outcome is ANSWERED else reply

    monkeypatch.setattr(NetworkProber, "framed", remember)
    monkeypatch.setattr(NetworkProber, "ask", listing)
    result, seen, _ = in_lab("coherence", ["none"])
    assert result.verdict is PASS
    assert result.measures["all_in_one_prompt"] == sorted(seen.baselines)
    assert len(seen.trials) == 11  # four baselines, three lengths, four above the limit
    assert "30 of 30 facts" in result.summary


def test_without_consent_nothing_near_the_limit_is_sent() -> None:
    result, seen, _ = in_lab("coherence", ["stale_pages"], permission=Permission(consent=False, seed=1))
    assert max(one.tokens for one in seen.trials) < N - 8
    assert result.verdict is OPEN


def test_a_wedged_engine_stops_the_check() -> None:
    result, seen, _ = in_lab("coherence", ["wedge_at_limit"])
    assert (result.verdict, result.severity) == (FAIL, "high")
    assert sum(one.tokens > N for one in seen.trials) == 1
