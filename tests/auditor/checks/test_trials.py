"""Trials: what a nonce in little room says, what counts as late, and the void rule."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply
from kvaudit.auditor.checks.trials import (
    MOST_KEPT,
    distinct_evidence,
    given_in,
    harmed,
    idle,
    key_refused,
    nothing_learnt,
    pool_use,
    result_builder,
    trial,
    unaskable,
    void_share,
    voids,
)
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.prompts import Contents, Nonce
from kvaudit.auditor.verdict import Evidence, Verdict
from tests.auditor.checks.active import (
    ANSWERED,
    BROKEN,
    BUSY,
    DENIED,
    FAILED,
    REFUSED,
    TIMED_OUT,
    UNANSWERED,
    A,
    audit,
    seen_as,
)

NONCE = Nonce("walnut")
ASKED = Contents(draw_marker(seeded(1)), NONCE.tail)


@pytest.mark.parametrize(
    ("text", "room", "given"),
    [
        (" walnut.", 24, True),
        ("something else", 24, False),
        ("", 24, False),
        (" ", 1, None),
        ("", 1, None),
        (" w", 1, True),
        (" wal", 4, True),
        (" walnuts", 4, True),
        (" x", 1, False),
        ("\nW", 1, True),
    ],
)
def test_nonces_in_little_room(text: str, room: int, given: bool | None) -> None:
    assert given_in(Reply(ANSWERED, text=text), ASKED, room) is given


def test_only_an_answer_has_a_nonce() -> None:
    assert given_in(Reply(REFUSED, text="walnut"), ASKED, 24) is None


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({}, True),
        ({"nonce": False}, False),
        ({"nonce": None}, False),
        ({"nonce": None, "cramped": True}, True),
        ({"nonce": None, "cramped": True, "prompt_tokens": 1}, False),
        ({"nonce": None, "cramped": True, "prompt_tokens": None}, False),
        ({"nonce": False, "cramped": True}, False),
    ],
)
def test_read(changes: dict[str, Any], read: bool) -> None:
    assert seen_as("N-1", 2_047, **changes).read is read


@pytest.mark.parametrize(
    ("outcome", "changes", "late"),
    [
        (TIMED_OUT, {}, True),
        (FAILED, {"status": 504}, True),
        (FAILED, {"error": "KVTransferError: Request timed out after 300s in KVPoll.WaitingForInput"}, True),
        (FAILED, {"error": "worker died"}, False),
        (BUSY, {"error": "timed out"}, False),
        (ANSWERED, {}, False),
    ],
)
def test_late(outcome: Outcome, changes: dict[str, Any], late: bool) -> None:
    assert seen_as("N", 9, outcome, **changes).late is late


def test_voids_are_counted_and_said_and_what_we_cancelled_is_neither() -> None:
    trials = [seen_as("x", 9, outcome) for outcome in (ANSWERED, REFUSED, BUSY, BUSY, Outcome.CANCELLED)]
    assert void_share(trials) == 0.5
    assert voids(trials) == "2 void (2 busy)"
    assert void_share([]) == 0.0
    assert voids([seen_as("x", 9)]) == "no void trial"
    assert voids([seen_as("x", 9, outcome) for outcome in (UNANSWERED, BROKEN, TIMED_OUT)]).startswith(
        "3 void ("
    )


def test_a_refused_key_is_found() -> None:
    assert f"the key of tenant {A} (401)" in key_refused([seen_as("x", 9), seen_as("x", 9, DENIED)])
    assert key_refused([seen_as("x", 9)]) == ""


def test_a_decoy_in_an_answer_is_our_own_fault_and_comes_before_a_refused_key() -> None:
    result = result_builder("canary", {}, "Anything.", [])
    met = nothing_learnt(result, [seen_as("x", 9, DENIED)], [SimpleNamespace(decoy=True)])
    assert met is not None
    assert (met.verdict, "never sent to anybody" in met.summary) == (Verdict.ERROR, True)
    assert nothing_learnt(result, [seen_as("x", 9)], [SimpleNamespace(decoy=False)]) is None


def test_a_trial_keeps_no_text() -> None:
    reduced = trial("N", Reply(ANSWERED, text="account 4711081599221177"), tenant=A, asked=ASKED, room=24)
    assert "4711081599221177" not in repr(reduced)


def test_pool_use_is_per_node_and_idle_needs_every_node() -> None:
    counters = {"pool_used/0": 5.0, "pool_used/1": 7.0, "running/0": 0.0, "waiting/1": 0.0}
    assert pool_use(counters) == {"0": 5.0, "1": 7.0}
    assert idle(counters)
    assert not idle({**counters, "running/1": 1.0})
    assert not idle({**counters, "waiting/0": 1.0})


class Prober:
    asked = 0

    async def healthy(self) -> str:
        self.asked += 1
        return "Silent."


@pytest.mark.parametrize(
    ("outcome", "looked"), [(ANSWERED, 0), (REFUSED, 0), (BUSY, 0), (TIMED_OUT, 1), (FAILED, 1), (BROKEN, 1)]
)
def test_health_is_looked_at_after_what_looks_like_harm(outcome: Outcome, looked: int) -> None:
    prober: Any = Prober()
    said = asyncio.run(harmed(prober, Reply(outcome)))
    assert prober.asked == looked
    assert said == ("Silent." if looked else "")


def test_evidence_is_kept_once_and_the_newest_when_there_is_much() -> None:
    items = [
        Evidence("response", str(number % (MOST_KEPT + 100)), "s", b"")
        for number in range(2 * MOST_KEPT + 200)
    ]
    assert len(distinct_evidence(items)) == MOST_KEPT
    assert distinct_evidence(items)[-1].sha256 == str(MOST_KEPT + 99)


def test_nobody_asked_is_inconclusive_and_says_why() -> None:
    result = unaskable("canary", audit(why="The entry refused the key."), "two tenants' keys")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the entry refused the key" in result.summary
