"""Misses: what following one up shows, what forbids a pass, and when a check stops asking."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from kvaudit.auditor.checks.asker import CONTROL, CONTROLS, REPLAY, Asker, Cell, Text
from kvaudit.auditor.checks.misses import Compared, Miss, Misses, MissKind
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Outcome, Reply, Stop
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.prompts import draw_nonce
from tests.auditor.checks.active import BUSY, FAILED, REFUSED, UNANSWERED, A, seen_as
from tests.auditor.checks.scripted import Asked, Script, Scripted

EXPLAINED, UNREPRODUCED, PERSISTENT = MissKind.EXPLAINED, MissKind.UNREPRODUCED, MissKind.PERSISTENT
LONG = 4_000
WRONG = " something else entirely."


@pytest.mark.parametrize(
    ("replay", "fresh", "kind"),
    [
        (False, True, EXPLAINED),
        (True, True, UNREPRODUCED),
        (None, True, UNREPRODUCED),
        (True, False, UNREPRODUCED),
        (True, None, UNREPRODUCED),
        (False, None, UNREPRODUCED),
        (None, None, UNREPRODUCED),
        (False, False, PERSISTENT),
        (None, False, PERSISTENT),
    ],
)
def test_two_repeats_say_what_a_miss_was(replay: bool | None, fresh: bool | None, kind: MissKind) -> None:
    assert Miss(seen_as("x", LONG, nonce=False), replay, fresh).kind is kind


def judged(missed: int = 0, of: int = 120, short: int = 0, shorts: int = 30, **more: Any) -> Misses:
    """``missed`` of ``of`` answers, all unreproduced unless ``explained`` says how many are not."""
    explained, foreign = more.pop("explained", 0), more.pop("foreign", 0)
    first = seen_as("x", LONG, nonce=False)
    found = Misses(control_asked=True, **more)
    for number in range(of):
        found.note(replace(first, nonce=number >= missed, foreign=number < foreign))
    for number in range(missed):
        found.add(Miss(replace(first, foreign=number < foreign), number >= explained, True))
    found.controls = [seen_as("control", 256, nonce=number >= short) for number in range(shorts)]
    return found


def compared(at: int, short: int = 0) -> dict[str, Compared]:
    sides = ([seen_as("x", LONG, nonce=number >= lost) for number in range(10)] for lost in (at, short))
    return {"x": Compared(LONG, *sides)}


@pytest.mark.parametrize(
    ("misses", "said"),
    [
        (judged(), ""),
        (judged(1), ""),
        (judged(2), "2 of 120 answers"),
        (judged(9, explained=8), ""),
        (judged(9, explained=7), "2 of 120 answers"),
        (judged(9, short=1), ""),  # 3 % of short ones allow 9 of 120
        (judged(10, short=1), "allows for 9"),
        (judged(60, short=15), ""),
        (judged(1, foreign=1), "Whose words they are is not known"),
        (judged(9, short=1, foreign=1), ""),  # 3 % of that rate allow one
        (judged(9, short=1, foreign=2), "2 of 120 answers, one at 4,000 tokens,"),
        (judged(compared=compared(6)), "At 4,000 tokens 6 of 10 answers"),
        (judged(compared=compared(5)), ""),
        (judged(compared=compared(10, 5)), ""),
        (judged(compared=compared(10, 4)), "of short ones 4 of 10"),
        (judged(2, 20, shorts=0), "no short prompt was read either"),
        (judged(20, 20, short=30), "no short prompt was read either"),
        (judged(2, short=2, controls_flipped=2), ""),  # others beside them turn one of a hundred
        (judged(4, short=2, controls_flipped=2), ""),
        (
            judged(6, short=6, controls_flipped=6),
            "6 of 120 answers",
        ),  # but a leak does so in short ones as well
    ],
)
def test_what_forbids_a_pass(misses: Misses, said: str) -> None:
    assert misses.why_no_pass == said or (said and said in misses.why_no_pass), misses.why_no_pass


def test_forgiven_misses_are_said() -> None:
    assert judged().said == ""
    assert "9 of 120 answers missed their nonce: 8 because of the prompt" in judged(9, explained=8).said
    assert judged(9, explained=8).as_measure()["explained"] == 8


# Asking

IDS = Mode.COMPLETION_IDS


def ask(script: Script, times: int = 1, tokens: int = LONG, **more: Any) -> tuple[Scripted, Asker]:
    """``times`` prompts of one cell; a `Stop` ends them."""
    planned = more.pop("planned", 0)
    prober = Scripted(script, **more)
    asker = Asker(prober, [], [], MissesByWay(), planned)  # type: ignore[arg-type]

    async def all_of_them() -> None:
        for number in range(times):
            await asker.ask(Cell("x", tokens, A), number)

    try:
        asyncio.run(all_of_them())
    except Stop as stop:
        asker.unhealthy = asker.unhealthy or stop.reason
    return prober, asker


def long_misses(*wrong: bool) -> Script:
    """Of the prompts of 4,000 tokens those are answered wrong; later and short ones right."""
    following = iter(wrong)
    return lambda asked: WRONG if asked.prompt.tokens == LONG and next(following, False) else asked.right


def test_nothing_is_repeated_where_all_is_read() -> None:
    prober, asker = ask(long_misses(), 5)
    assert len(prober.asked) == 5
    assert asker.misses.of(IDS).answers == 5


@pytest.mark.parametrize(
    ("wrong", "kind", "forbids"),
    [((True, True, False), EXPLAINED, False), ((True, False, False), UNREPRODUCED, False)],
)
def test_a_miss_is_repeated_at_once_identical_and_fresh(wrong: Any, kind: MissKind, forbids: bool) -> None:
    prober, asker = ask(long_misses(*wrong))
    long = [one for one in prober.asked if one.prompt.tokens == LONG]
    assert [one.replayed for one in long] == [False, True, False]
    assert long[1].salt
    assert [miss.kind for miss in asker.misses.found] == [kind]
    assert len(asker.misses.controls) == CONTROLS
    assert bool(asker.misses.why_no_pass) is forbids
    assert sum(one.name == REPLAY for one in asker.trials) == 1


def test_a_miss_that_persists_is_compared_with_short_prompts() -> None:
    _, asker = ask(long_misses(*[True] * 99))
    assert "10 of 10 answers" in asker.misses.why_no_pass
    assert "of short ones 0 of 10" in asker.misses.why_no_pass


def test_a_cell_is_compared_once() -> None:
    prober, asker = ask(long_misses(*[True] * 99), 5)
    assert (
        sum(one.prompt.tokens == LONG for one in prober.asked) == 5 + 3 + 20
    )  # each with its identical repeat
    assert asker.misses.of(IDS).missed == 5 + 1 + 10


@pytest.mark.parametrize(
    ("salted", "cached", "kind"),
    [
        (True, 0, EXPLAINED),
        (True, None, EXPLAINED),
        (True, 2_000, UNREPRODUCED),  # the salt was ignored: a cached page repeats the damage
        (False, 0, EXPLAINED),
        (False, None, UNREPRODUCED),
        (False, 2_000, UNREPRODUCED),
        (False, 48, EXPLAINED),  # a template of 40 tokens, rounded up to a page
    ],
)
def test_a_replay_out_of_a_cache_says_nothing(salted: bool, cached: int | None, kind: MissKind) -> None:
    def script(asked: Asked) -> Reply | str:
        if not asked.replayed:
            return (
                WRONG
                if asked is next(one for one in prober.asked if one.prompt.tokens == LONG)
                else asked.right
            )
        return Reply(Outcome.ANSWERED, 200, WRONG, cached_tokens=cached, tokens_sent=LONG)

    prober = Scripted(script, salted=salted, templates={(IDS, A): 40})
    asker = Asker(prober, [], [], MissesByWay())  # type: ignore[arg-type]
    asyncio.run(asker.ask(Cell("x", LONG, A)))
    assert [miss.kind for miss in asker.misses.found] == [kind]


def test_a_target_that_takes_no_salt_is_asked_without() -> None:
    first: list[Asked] = []

    def script(asked: Asked) -> Reply | str:
        if asked.salt:
            return Reply(UNANSWERED, 400, error="unknown field cache_salt", tokens_sent=LONG)
        first.append(asked)
        return WRONG if len(first) == 1 or asked.replayed else asked.right

    _, asker = ask(script)
    assert [miss.kind for miss in asker.misses.found] == [EXPLAINED]


@pytest.mark.parametrize(("thinks", "room"), [(20, 24), (100, 128), (500, 512), (1_000, 1_024)])
def test_a_model_that_thinks_first_gets_room_for_it(thinks: int, room: int) -> None:
    _, asker = ask(lambda asked: asked.right if asked.max_tokens >= thinks else " Okay, the user", 3)
    assert asker.misses.of(IDS).room in (room, None)
    assert asker.misses.of(IDS).missed == 0
    assert [one.read for one in asker.trials if one.name == "x"][-3:] == [True] * 3


def test_without_room_to_think_a_missing_nonce_says_nothing() -> None:
    """At N - 1 some engines give one token."""

    class Tight(Scripted):
        def room(self, prompt_tokens: int, wanted: int) -> int:
            return 1 if prompt_tokens == LONG else wanted

    prober = Tight(lambda asked: asked.right if asked.max_tokens >= 100 else "T")
    asker = Asker(prober, [], [], MissesByWay())  # type: ignore[arg-type]
    answer = asyncio.run(asker.ask(Cell("N-1", LONG, A)))
    assert (answer.trial.nonce, answer.trial.cramped, asker.misses.of(IDS).missed) == (None, True, 0)


def test_a_model_that_cannot_do_it_in_short_is_not_asked_again() -> None:
    prober, asker = ask(lambda asked: WRONG, 6)
    assert asker.misses.control_lost
    assert sum(one.prompt.tokens == LONG for one in prober.asked) == 6
    assert sum(one.name == CONTROL for one in asker.trials) == 12


@pytest.mark.parametrize(
    ("replies", "planned", "sent", "said"),
    [
        ([FAILED] * 9, 0, 3, "3 failures in a row, the last at 4,000 tokens: failed (500: out of memory)"),
        ([FAILED, FAILED, REFUSED] * 3, 0, 9, ""),
        ([BUSY] * 9, 20, 3, "3 void (3 busy) of 20 planned trials already forbid a pass"),
        ([BUSY] * 2, 20, 2, ""),
    ],
)
def test_what_can_only_cost_is_not_sent(replies: Any, planned: int, sent: int, said: str) -> None:
    following = iter(replies)
    script: Script = lambda asked: Reply(  # noqa: E731
        next(following), 500, error="out of memory", tokens_sent=LONG
    )
    prober, asker = ask(script, len(replies), planned=planned)
    assert len(prober.asked) == sent
    assert said in asker.unhealthy
    assert bool(said) is bool(asker.unhealthy)


def test_harm_ends_the_check() -> None:
    prober, asker = ask(lambda asked: Reply(FAILED, 500, tokens_sent=LONG), 5, unwell="Silent.")
    assert len(prober.asked) == 1
    assert asker.unhealthy == "Silent."


RUNS = 40


@pytest.mark.parametrize(
    ("leak", "shortest", "weak", "least", "most"),
    [
        (0.10, LONG, 0.0, 0, 1),
        (0.05, LONG, 0.01, 0, 5),
        (0.10, LONG, 0.03, 0, 2),
        (0.10, 0, 0.0, 0, 4),  # at every length, those of the controls as well
        (0.20, 0, 0.03, 0, 1),
        (0.0, 0, 0.01, 39, 40),
        (0.0, 0, 0.03, 39, 40),
        (0.0, 0, 0.10, 39, 40),
    ],
)
def test_random_leaks_are_seen_and_weak_models_are_not_blocked(
    leak: float, shortest: int, weak: float, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 runs of 120 long prompts: how many may pass. A weak model misses the same prompts each time."""
    marker, nonce = draw_marker(seeded(1)), draw_nonce(seeded(2))
    monkeypatch.setattr("kvaudit.auditor.checks.asker.draw_marker", lambda draw: marker)

    def passes(seed: int) -> bool:
        chance = random.Random(seed)
        asked_before: list[tuple[object, bool]] = []

        def script(asked: Asked) -> str:
            known = next((bad for prompt, bad in asked_before if prompt is asked.prompt), None)
            bad = chance.random() < weak if known is None else known
            asked_before.append((asked.prompt, bad))
            leaks = asked.prompt.tokens >= shortest and chance.random() < leak
            return WRONG if bad or leaks else asked.right

        prober = Scripted(script)
        asker = Asker(prober, [], [], MissesByWay())  # type: ignore[arg-type]

        async def run() -> None:
            for number in range(120):
                await asker.ask(Cell("x", LONG, A, lambda draw: Text(marker, nonce.tail)), number)

        asyncio.run(run())
        return not asker.misses.why_no_pass

    assert least <= sum(passes(seed) for seed in range(RUNS)) <= most


def test_a_system_prompt_leaves_room_for_the_question() -> None:
    prober, _ = ask(lambda asked: asked.right, 1, 300, templates={(IDS, A): 400})
    assert prober.asked[0].prompt.tokens == 656
    prober, _ = ask(lambda asked: asked.right, 1, 300)
    assert prober.asked[0].prompt.tokens == 300
