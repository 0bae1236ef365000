"""Caches that cross tenants: whose pages are hit, and what the client is told."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import orjson
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


FRAME = " The audit phrase is:"
UNIFIED = LabConfig(unified=True, prefill_pool=16_384)


async def _phrase(lab, tenant, marker, tokens=1_000):
    return await lab.text(tenant, frames(marker, tokens, FRAME), 40)


@pytest.mark.parametrize("config", [ENLARGED, UNIFIED])
def test_hit_garbles_answers_right_once_and_counts_right_ever_after(config):
    async def use(lab):
        said = [await _phrase(lab, A, AMBER) for _ in range(2)]
        return said, await _cached(lab, A, frames(AMBER, 1_000, FRAME))

    (first, again), cached = with_lab(use, ["hit_garbles"], config)
    assert first.strip() == AMBER
    assert "falcon" not in again
    assert cached == 992
    (first, again), _ = with_lab(use, ["none"], config)
    assert first == again


def _evicted(faults):
    """A's answer before and after its prefix was pushed out of the pool by B's, and what A was given then."""

    async def use(lab):
        first = await _phrase(lab, A, AMBER)
        at_once = await _phrase(lab, A, AMBER)
        for number in range(3):
            await lab.ask(B, f"{number} " + frames(WALNUT, 4_000), 2)
        status, said = await lab.ask(A, frames(AMBER, 1_000, FRAME), 40)
        assert status == 200
        return (
            first,
            at_once,
            said["choices"][0]["text"],
            said["usage"]["prompt_tokens_details"]["cached_tokens"],
        )

    return with_lab(use, faults, SMALL)


def test_tier_garbles_strikes_when_pages_come_back_from_the_second_tier():
    first, at_once, back, cached = _evicted(["tier_garbles"])
    assert first == at_once
    assert "falcon" not in back
    assert cached == 992


def test_tier_swaps_gives_back_what_the_next_request_wrote():
    first, at_once, back, cached = _evicted(["tier_swaps"])
    assert first == at_once
    assert "pebble lantern" in back, "B's words under A's key"
    assert cached == 992
    assert _evicted(["none"])[2] == first


def test_unwritten_hash_serves_a_retry_from_pages_that_nobody_wrote():
    async def use(lab):
        prefill = lab.inside.deployment.nodes[0]
        await lab.ask(B, frames(WALNUT, 5_000), 2)
        prefill.cache.flush()
        leaving = asyncio.ensure_future(_phrase(lab, A, AMBER, 5_000))
        while not prefill.stages["prefilling"]:
            await asyncio.sleep(0.001)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await asyncio.sleep(1)
        return await _phrase(lab, A, AMBER, 5_000), set(lab.reads.prefill[3].tolist())

    text, writers = with_lab(use, ["unwritten_hash"], replace(ENLARGED, second_tier=False))
    assert "pebble lantern" in text
    assert 1 in writers
    text, writers = with_lab(use, ["none"], replace(ENLARGED, second_tier=False))
    assert text.strip() == AMBER
    assert writers == {3}


def test_third_tenant_is_served_the_first_ones_pages():
    async def use(lab):
        prompt = frames(AMBER, 1_000)
        return [await _cached(lab, tenant, prompt) for tenant in (A, B, C)]

    assert with_lab(use, ["third_tenant"], ENLARGED) == [0, 0, 992]


@pytest.mark.parametrize("stream", [False, True])
def test_response_cache_gives_another_key_the_same_answer_where_the_temperature_is_0(stream):
    async def use(lab):
        body = {"prompt": frames(AMBER, 500), "max_tokens": 16, "stream": stream}
        heard = []
        for tenant, temperature in ((A, 0), (B, 0), (B, 1.0), (A, 1.0)):
            _, headers, content = await lab.raw(tenant, {**body, "temperature": temperature})
            heard.append((content, headers.get("x-cache")))
        return heard

    (first, unmarked), (second, marked), (third, no_hit), (fourth, _) = with_lab(
        use, ["response_cache"], ENLARGED
    )
    assert first == second
    assert (unmarked, marked, no_hit) == (None, "HIT", None)
    assert third != fourth
