"""Keys, the split of a request into legs, and clients that go away."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from kvaudit.lab.config import LabConfig
from tests.lab.asking import AMBER, A, frames, with_lab


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/liveness", 200),
        ("/readiness", 200),
        ("/health", 200),
        ("/v1/models", 200),
        ("/get_server_info", 200),
        ("/engine_metrics", 200),
        ("/workers", 401),
        ("/nowhere", 404),
    ],
)
def test_public_and_guarded_paths(path, status):
    assert with_lab(lambda lab: lab.get(lab.inside.entry, path))[0] == status


def test_server_info_through_the_router_is_the_first_prefill_nodes():
    async def use(lab):
        return (await lab.get(lab.inside.entry, "/get_server_info"))[1]

    assert orjson.loads(with_lab(use))["disaggregation_mode"] == "prefill"


@pytest.mark.parametrize("key", ["", "sk-wrong", "sk-lab-router-control"])
def test_only_tenants_complete(key):
    async def use(lab):
        return await lab.post(lab.inside.entry, "/v1/completions", {"prompt": "hello"}, key)

    assert with_lab(use) == (401, {"error": "Unauthorized"})


def test_rooms_and_salts_of_the_client_are_overwritten():
    async def use(lab):
        seen = []
        api = lab.inside.deployment.apis[0]
        parse = api.parse
        api.parse = lambda path, body: seen.append(body) or parse(path, body)
        await lab.ask(A, "hello", 1, bootstrap_room=7, cache_salt="mine", extra_key="theirs")
        return seen[0]

    body = with_lab(use)
    assert body["bootstrap_room"] != 7
    assert body["cache_salt"] == "tenant-a:mine"
    assert "extra_key" not in body


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("after", [0.0, 0.02, 0.06, 0.08])
def test_a_client_that_leaves_frees_both_legs(streamed, after):
    async def use(lab):
        body = {"prompt": frames(AMBER, 4_000), "max_tokens": 400, "stream": streamed}
        asking = asyncio.ensure_future(
            lab.post(lab.inside.entry, "/v1/completions", body, lab.inside.keys[A])
        )
        await asyncio.sleep(after)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.05)
        return [(node.idle, node.counters.generated_tokens) for node in lab.inside.deployment.nodes]

    assert [idle for idle, _ in with_lab(use)] == [True, True]


def test_a_unified_node_has_one_leg():
    async def use(lab):
        listed = lab.inside.deployment.router.workers()
        return listed["stats"]["by_type"], (await lab.ask(A, "hello", 1))[0]

    assert with_lab(use, [], LabConfig(unified=True)) == ({"regular": 1, "prefill": 0, "decode": 0}, 200)


def test_the_temperature_of_the_deployment_is_the_default():
    async def use(lab):
        prompt = " ".join(f"{n} x{letter}" for n, letter in enumerate("abcdefgh" * 8)) + " 99 x"
        return len({await lab.text(A, prompt, 1) for _ in range(30)})

    assert with_lab(use, [], LabConfig(temperature=1.0)) > 1
    assert with_lab(use) == 1


def test_stop_strings_end_an_answer():
    async def use(lab):
        return await lab.ask(A, "one two three one two three one", 40, stop=["three"])

    status, said = with_lab(use)
    assert status == 200
    assert said["choices"][0]["finish_reason"] == "stop"
    assert said["choices"][0]["matched_stop"] == "three"
