from __future__ import annotations

import asyncio
import time

import pytest

from kvaudit.lab import clock
from tests.waiting import bounded


def test_virtual_time_jumps_and_keeps_its_order():
    async def main():
        began, seen = clock.now(), []

        async def at(seconds):
            await asyncio.sleep(seconds)
            seen.append(clock.now() - began)

        await asyncio.gather(at(3_600), at(60), at(0.5))
        return seen

    with bounded(60, "an hour of virtual time"):
        assert clock.run_virtual(main()) == pytest.approx([0.5, 60, 3_600])


def test_timeouts_work_on_the_virtual_clock():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(300):
                await asyncio.Event().wait()
        return clock.now()

    assert clock.run_virtual(main()) >= 300


def test_wall_time_is_simulated_only_on_a_virtual_loop():
    async def wall():
        return clock.wall(), clock.is_virtual()

    assert clock.run_virtual(wall()) == (pytest.approx(clock.VIRTUAL_EPOCH), True)
    found, virtual = asyncio.run(wall())
    assert abs(found - time.time()) < 60
    assert not virtual


def test_compute_runs_in_one_thread_on_the_real_loop():
    async def main():
        compute = clock.Compute()
        import threading

        names = {await compute.run(lambda: threading.current_thread().name) for _ in range(5)}
        compute.close()
        return names

    assert len(asyncio.run(main())) == 1


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 0.005), (1_000, 0.010), (8_000, 0.101)])
def test_a_prefill_takes_a_plus_bn_plus_cn_squared(tokens, seconds):
    assert clock.Durations().prefill(tokens) == pytest.approx(seconds, rel=0.01)
    assert clock.Durations(scale=0).prefill(tokens) == 0
