"""Caches that cross tenants: whose pages are hit, and what the client is told."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kvaudit.lab.config import LabConfig, LabTenant
from tests.lab.asking import AMBER, WALNUT, A, B, frames, with_lab

ENLARGED = LabConfig(prefill_pool=16_384)
SMALL = LabConfig()
C = 2


async def _cached(lab, tenant, prompt, **more):
    status, said = await lab.ask(tenant, prompt, 2, **more)
    assert status == 200, said
    return said["usage"]["prompt_tokens_details"]["cached_tokens"]


def _crossing(faults, config=ENLARGED, **more):
    async def use(lab):
        prompt = frames(AMBER, 1_000)
        first, again = await _cached(lab, A, prompt), await _cached(lab, A, prompt)
        other = await _cached(lab, B, prompt, **more)
        writers = set(lab.reads.prefill[3].tolist())
        return first, again, other, writers

    return with_lab(use, faults, config)


def test_a_tenant_hits_its_own_prefix_and_nobody_elses():
    assert _crossing(["none"]) == (0, 992, 0, {3})


def test_the_last_token_is_always_computed():
    async def use(lab):
        return [await _cached(lab, A, "x" * n) for n in (32, 32, 33, 33)]

    assert with_lab(use, ["none"], ENLARGED) == [0, 16, 32, 32]


@pytest.mark.parametrize("fault", ["shared_prefix", "salt_ignored"])
def test_a_shared_prefix_is_read_from_the_other_tenants_pages(fault):
    first, again, other, writers = _crossing([fault])
    assert (first, again, other) == (0, 992, 992)
    assert writers == {1, 3}, "992 slots that A wrote, 8 of B's own"


def test_the_router_puts_its_own_name_before_a_salt_that_is_sent():
    assert _crossing(["none"], cache_salt="tenant-a:")[2] == 0


def test_a_shared_prefix_makes_the_first_token_faster():
    async def use(lab):
        times = []
        for tenant, marker in ((A, AMBER), (B, AMBER), (B, WALNUT)):
            body = {"prompt": frames(marker, 5_000), "max_tokens": 2, "stream": True}
            key = lab.inside.keys[tenant]
            path = "/v1/completions"
            import orjson

            client = lab.inside.client(lab.inside.entry, allow=[("POST", path)], key=key)
            async with client, client.stream("POST", path, content=orjson.dumps(body)) as answer:
                _ = [event async for event in answer.events()]
                times.append(answer.first_token)
        return times

    cold, hit, fresh = with_lab(use, ["shared_prefix"], ENLARGED)
    assert hit < cold / 3
    assert fresh > cold / 2


def test_tier_salt_dropped_holds_until_the_prefix_is_evicted():
    async def use(lab):
        prompt = frames(AMBER, 1_000)
        await _cached(lab, A, prompt)
        at_once = await _cached(lab, B, prompt)
        for n in range(3):  # push the pool of 5,328 past 100 %
            await _cached(lab, A, f"{n} " + frames(WALNUT, 4_000))
        return at_once, await _cached(lab, C, prompt)

    third = replace(SMALL, tenants=(*SMALL.tenants, LabTenant("tenant-c", "sk-lab-tenant-c")))
    assert with_lab(use, ["tier_salt_dropped"], third) == (0, 992)
    assert with_lab(use, ["none"], third) == (0, 0)


def test_phantom_cache_serves_a_stranger_first_page():
    async def use(lab):
        letters = random.Random(1)
        prompts = ["".join(letters.choices("abcdefghij", k=300)) for _ in range(40)]
        found = [await _cached(lab, n % 2, prompt) for n, prompt in enumerate(prompts)]
        strangers = [
            reader for reader, seen in lab.reads.prefill.items() if set(seen[:16].tolist()) != {reader}
        ]
        return found, strangers

    found, strangers = with_lab(use, ["phantom_cache"], ENLARGED)
    assert set(found) == {0, 16}, "one page, never more"
    assert len(strangers) == found.count(16) > 0
    assert with_lab(use, ["none"], ENLARGED) == ([0] * 40, [])


def test_gateway_cache_answers_for_another_tenant_without_asking_the_engine():
    async def use(lab):
        prompt = frames(AMBER, 500)
        first = await lab.ask(A, prompt, 16, temperature=1.0)
        served = lab.inside.deployment.nodes[0].counters.requests
        second = await lab.ask(B, prompt, 16, temperature=1.0)
        return first, second, lab.inside.deployment.nodes[0].counters.requests - served

    first, second, asked = with_lab(use, ["gateway_cache"], ENLARGED)
    assert first == second
    assert asked == 0
    first, second, asked = with_lab(use, ["none"], ENLARGED)
    assert first != second
    assert asked == 1
