"""Health after a prompt that may have done harm: a minute to come back, and one lost request is no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply, Stop
from kvaudit.auditor.prober.health import HealthProblem, of_node, of_reply, watched
from kvaudit.auditor.transport import Client
from kvaudit.lab.clock import run_virtual
from tests import servers

WELL, ILL, LIMITED = (
    HealthProblem(),
    HealthProblem("A node answers 500."),
    HealthProblem("too many", limited=True),
)
GONE = HealthProblem("An ordinary request is not answered any more: no healthy upstream", absent=True)
HANG = "hang"


class Clock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def watch(*looks: HealthProblem | str, then: HealthProblem | str = WELL) -> tuple[str, float, int]:
    """What is said, after how many seconds, in how many looks."""
    following: Iterator[HealthProblem | str] = iter(looks)
    asked: list[float] = []

    async def look(seconds: float) -> HealthProblem:
        asked.append(seconds)
        found = next(following, then)
        if isinstance(found, str):
            await asyncio.sleep(seconds)
            return HealthProblem("It hangs.")
        return found

    async def main() -> tuple[str, float, int]:
        began = Clock().now()
        said = await watched(Clock(), look)
        return said, Clock().now() - began, len(asked)

    return run_virtual(main())


def test_a_restart_of_minutes_is_no_harm() -> None:
    """A gateway answers 502 while its workers start (redteam restart)."""
    said, seconds, _ = watch(*[GONE] * 60)
    assert (said, seconds) == ("", 180.0)
    said, seconds, _ = watch(then=GONE)
    assert said == GONE.problem
    assert 330 <= seconds <= 340


def test_a_pause_that_is_asked_for_is_no_harm() -> None:
    waits = HealthProblem("too many", limited=True, wait=100.0)
    said, seconds, looks = watch(waits, waits)
    assert (said, seconds, looks) == ("", 200.0, 3)


def test_well_at_once() -> None:
    assert watch() == ("", 0.0, 1)


def test_a_failure_that_passes_within_the_minute_is_no_harm() -> None:
    said, seconds, looks = watch(ILL, ILL, ILL)
    assert (said, looks) == ("", 4)
    assert seconds < 60


def test_one_lost_request_is_no_harm() -> None:
    said, seconds, looks = watch(HANG)
    assert (said, looks) == ("", 2)
    assert seconds == pytest.approx(20)


def test_a_minute_of_failures_is_said() -> None:
    said, seconds, looks = watch(then=ILL)
    assert said == ILL.problem
    assert 55 < seconds < 70
    assert looks >= 10


def test_a_minute_of_silence_is_said() -> None:
    said, seconds, looks = watch(then=HANG)
    assert said == "It hangs."
    assert 55 < seconds < 70
    assert looks == 3


def test_a_rate_limit_is_no_harm_but_an_end() -> None:
    with pytest.raises(Stop, match="429"):
        watch(then=LIMITED)


@pytest.mark.parametrize(
    ("outcome", "status", "problem", "limited"),
    [
        (Outcome.ANSWERED, 200, False, False),
        (Outcome.EMPTY, 200, False, False),
        (Outcome.DENIED, 401, False, False),
        (Outcome.BUSY, 429, True, True),
        (Outcome.BUSY, 503, True, False),
        (Outcome.TIMED_OUT, 0, True, False),
        (Outcome.REFUSED, 400, True, False),
    ],
)
def test_replies(outcome: Outcome, status: int, problem: bool, limited: bool) -> None:
    found = of_reply(Reply(outcome, status, tokens_sent=256))
    assert (bool(found.problem), found.limited) == (problem, limited)


@pytest.mark.parametrize(
    ("behaviour", "well"),
    [
        (servers.replay({"/health": servers.Recorded(200)}), True),
        (servers.replay({}), True),  # 404: it has none
        (servers.replay({"/health": servers.Recorded(401)}), True),
        (servers.replay({"/health": servers.Recorded(503)}), False),
        (servers.hanging(), False),
    ],
)
def test_nodes(behaviour: servers.Behaviour, well: bool) -> None:
    async def main() -> HealthProblem:
        async with (
            servers.serving(behaviour) as server,
            Client(server.url, allow={("GET", "/health")}) as client,
        ):
            return await of_node(client, "/health", 20.0 if well else 0.3)  # only what hangs uses its time up

    assert (asyncio.run(main()).problem == "") is well
