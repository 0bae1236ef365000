"""Routes and forms in turn, each with its own controls and misses: a leak of one of them alone is no other's."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kvaudit.auditor.checks.asker import Asker, Cell
from kvaudit.auditor.checks.misses import Misses
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.ways import LONGEST_TEXT, Way, Ways, asked_as, every_way, ways_asked
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import A, in_lab, seen_as
from tests.auditor.checks.scripted import Asked, Scripted

IDS, TEXT, CHAT = Mode.COMPLETION_IDS, Mode.COMPLETION_TEXT, Mode.CHAT_TEXT
FOUR = (IDS, Mode.GENERATE_IDS, TEXT, CHAT)


@pytest.mark.parametrize("modes", [FOUR[:count] for count in (1, 2, 3, 4)])
def test_every_route_comes_in_both_forms_and_each_route_first_once(modes: tuple[Mode, ...]) -> None:
    ways = every_way(modes)
    assert set(ways) == {Way(mode, stream) for mode, stream in product(modes, (True, False))}
    assert [way.mode for way in ways[: len(modes)]] == list(modes)
    assert len({way.stream for way in ways[:2]}) == 2


def prober(modes: tuple[Mode, ...] = (IDS, TEXT, CHAT), script: Any = lambda asked: asked.right) -> Any:
    return Scripted(script, modes=modes)


def test_kinds_of_requests_have_turns_of_their_own_and_long_texts_go_as_ids() -> None:
    ways = Ways(prober())
    assert [ways.next("a", 1_000).mode for _ in range(4)] == [IDS, TEXT, CHAT, IDS]
    assert ways.next("b", 1_000).mode is IDS
    assert ways.next("c", 1_000, first=2).mode is CHAT
    assert {ways.next("d", LONGEST_TEXT + 1).mode for _ in range(6)} == {IDS}
    assert Ways(prober((CHAT,))).next("e", LONGEST_TEXT + 1).mode is CHAT


def test_a_route_that_cannot_be_judged_is_asked_no_more() -> None:
    ways = Ways(prober())
    ways.given_up = {CHAT}
    assert {ways.next("a", 1_000).mode for _ in range(6)} == {IDS, TEXT}
    ways.given_up = {IDS, TEXT, CHAT}
    assert ways.modes == (IDS, TEXT, CHAT)


def asked(script: Any, times: int = 12) -> Asker:
    import asyncio

    asker = Asker(prober(script=script), [], [], MissesByWay())

    async def all_of_them() -> None:
        for number in range(times):
            await asker.ask(Cell("x", 4_000, A), number)

    asyncio.run(all_of_them())
    return asker


def test_a_leak_of_one_route_is_compared_with_short_prompts_of_that_route() -> None:
    def script(one: Asked) -> str:
        return " Kalo mir." if one.prompt.mode == CHAT and one.prompt.tokens == 4_000 else one.right

    found = asked(script).misses
    assert "of short ones 0 of 10" in found.why_no_pass
    assert found.why_no_pass.endswith(f"(asked as {CHAT}).")
    assert {mode for mode, misses in found.by_mode.items() if misses.missed} == {CHAT}
    assert {one.mode for one in found.controls} == {CHAT}


def test_a_model_that_does_not_answer_in_chats_is_named() -> None:
    asker = asked(lambda one: "As an assistant" if one.prompt.mode == CHAT else one.right)
    assert asker.misses.why_no_pass.endswith(f"or pages of others (asked as {CHAT}).")
    assert f"Nothing was judged as {CHAT}" in asker.misses.unheard
    assert not asker.misses.control_lost


def once_missed(answers: int = 7) -> Misses:
    return Misses(answers, 1, control_asked=True, controls=[seen_as("control", 256) for _ in range(30)])


def test_one_miss_of_each_route_is_more_than_one() -> None:
    """What three routes may each miss by chance, a run may not miss three times."""
    one = MissesByWay({IDS: once_missed()})
    three = MissesByWay({mode: once_missed() for mode in (IDS, TEXT, CHAT)})
    assert one.why_no_pass == ""
    assert three.why_no_pass.startswith("3 of 21 answers, over 3 ways to ask,")


def test_ways_are_said() -> None:
    trials = [
        seen_as("x", 1_000, mode=mode, stream=stream) for mode, stream in [(IDS, True), (CHAT, False)] * 2
    ]
    assert asked_as(trials) == f" Asked as {IDS} and {CHAT}, streamed and whole."
    assert ways_asked(trials) == {f"{IDS}, streamed": 2, f"{CHAT}, whole": 2}
    assert (asked_as([]), ways_asked([])) == ("", {})


@pytest.mark.parametrize(
    "check", ["accounting", "rejection", "coherence", "prefill", "prefix", "concurrency"]
)
def test_every_check_asks_by_every_route(check: str) -> None:
    result, _, prober = in_lab(check)
    assert result.verdict is not Verdict.FAIL, result.summary
    routes = {way.rpartition(", ")[0] for way in result.measures["ways"]}
    assert routes == {mode.value for mode in prober.modes}
    assert CHAT in result.summary or result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("fault", "check", "verdict"),
    [
        ("chat_only", "rejection", Verdict.FAIL),
        ("unstreamed_only", "rejection", Verdict.FAIL),
        ("stream_mix", "concurrency", Verdict.FAIL),
        ("chat_only", "prefill", Verdict.INCONCLUSIVE),  # missed, at a time that says nothing
    ],
)
def test_a_leak_of_one_way_is_found(fault: str, check: str, verdict: Verdict) -> None:
    result, _, _ = in_lab(check, [fault])
    assert result.verdict is verdict, result.summary
