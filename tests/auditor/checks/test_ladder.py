"""The ladder's lengths, and the search for an unknown limit."""

from __future__ import annotations

import asyncio

import pytest

from kvaudit.auditor.checks.rejection.ladder import CLOSE, bisect, rungs


def named(*arguments: int | None, edge: int | None = None) -> dict[str, tuple[int, int]]:
    return {rung.name: (rung.tokens, rung.repeats) for rung in rungs(*arguments, edge)}  # type: ignore[arg-type]


def test_the_whole_ladder_of_the_incident() -> None:
    assert named(681_274, 1_048_576, 64) == {
        "N-1": (681_273, 3),
        "N-64": (681_210, 1),
        "N-2": (681_272, 1),
        "N": (681_274, 3),
        "N+1": (681_275, 1),
        "N+page": (681_338, 1),
        "midpoint": (864_925, 3),
        "C-1": (1_048_575, 1),
        "C": (1_048_576, 1),
        "C+1": (1_048_577, 1),
    }


def test_the_last_accepted_length_comes_first_since_refusals_lean_on_it() -> None:
    assert rungs(5_322, 8_192, 16)[0].name == "N-1"


def test_lengths_that_coincide_are_asked_once() -> None:
    chosen = rungs(2_048, 2_048, 16)
    assert len({rung.tokens for rung in chosen}) == len(chosen)
    assert {rung.name for rung in chosen} == {"N-1", "N-64", "N-2", "N", "N+1", "N+page"}


def test_an_edge_limit_adds_its_own_two_and_keeps_the_larger_repeat() -> None:
    assert named(5_322, 8_192, 16, edge=4_000)["edge+1"] == (4_001, 3)
    assert named(5_322, 8_192, 16, edge=5_321)["N"] == (5_322, 3)


def test_a_model_that_thinks_first_is_asked_where_it_has_room() -> None:
    assert [(one.name, one.tokens) for one in rungs(8_186, 8_192, 16, room=512) if "room" in one.name] == [
        ("N-room", 7_674)
    ]
    assert not any(
        one.name == "N-room" for one in rungs(600, 8_192, 16, room=512)
    )  # too short to be near the limit


def test_without_a_limit_there_is_no_ladder() -> None:
    assert rungs(None, 8_192, 16) == ()


@pytest.mark.parametrize("limit", [600, 5_322, 8_000, 8_192])
@pytest.mark.parametrize("context", [8_192, None])
def test_the_limit_is_found_to_within_a_page_or_so(limit: int, context: int | None) -> None:
    asked: list[int] = []

    async def read(tokens: int) -> bool:
        asked.append(tokens)
        return tokens < limit

    found = asyncio.run(bisect(read, context))
    assert found is not None
    assert 0 <= found - limit <= CLOSE
    assert len(asked) < 24


@pytest.mark.parametrize("silent_at", [512, 4_352, 8_193])
def test_an_answer_that_does_not_come_leaves_the_limit_unknown(silent_at: int) -> None:
    async def read(tokens: int) -> bool | None:
        return None if tokens == silent_at else tokens < 5_322

    assert asyncio.run(bisect(read, 8_192)) is None


def test_a_target_that_refuses_everything_or_nothing_has_no_limit_to_find() -> None:
    async def never(tokens: int) -> bool:
        return False

    async def always(tokens: int) -> bool:
        return True

    assert asyncio.run(bisect(never, 8_192)) is None
    assert asyncio.run(bisect(always, 8_192)) is None
    assert asyncio.run(bisect(always, None)) is None
