"""What stands before the engine, and what comes back beside the text of an answer."""

from __future__ import annotations

import asyncio
import json

import pytest

from kvaudit.lab.config import LabConfig
from kvaudit.lab.customers import TEXTS
from kvaudit.lab.faults import known
from tests.lab.asking import AMBER, WALNUT, A, B, frames, nonce, with_lab

ENLARGED = LabConfig(prefill_pool=16_384)
CHAT = "/v1/chat/completions"
ZONE = 6_400
"""Tokens: the main replica takes them, the stray one's pool does not."""


@pytest.mark.parametrize(
    ("fault", "least", "most"), [("empty_some", 3, 24), ("empty_all", 60, 60), ("none", 0, 0)]
)
@pytest.mark.parametrize("stream", [False, True])
def test_empty_answers_are_successes_that_count_their_prompt(fault, least, most, stream):
    async def use(lab):
        empty = 0
        for number in range(60):
            body = {"prompt": f"{number} " + frames(AMBER, 300), "max_tokens": 8}
            if stream:
                body["stream_options"] = {"include_usage": True}
                status, events, done = await lab.stream(A, body)
                assert done
                text = "".join(choice["text"] for event in events for choice in event["choices"])
            else:
                status, said = await lab.post(lab.inside.entry, "/v1/completions", body, lab.inside.keys[A])
                text, events = said["choices"][0]["text"], [said]
            assert status == 200
            usage = events[-1]["usage"]
            assert usage["prompt_tokens"] == len(body["prompt"])
            assert usage["completion_tokens"] == len(text)
            empty += not text
        return empty

    assert least <= with_lab(use, [fault], ENLARGED) <= most


@pytest.mark.parametrize(
    ("fault", "forms", "mixed"),
    [("stream_mix", (True, False), True), ("stream_mix", (True, True), False), ("stream_mix", (False, False), False),
     ("none", (True, False), False)],
)  # fmt: skip
def test_stream_mix_gives_a_streamed_and_an_unstreamed_request_each_others_answer(fault, forms, mixed):
    async def use(lab):
        async def ask(tenant, marker, stream, after):
            await asyncio.sleep(after)
            body = {"prompt": frames(marker, 2_000, " The audit phrase is:"), "max_tokens": 24}
            if not stream:
                return await lab.text(tenant, body["prompt"])
            _, events, _ = await lab.stream(tenant, body)
            return "".join(choice["text"] for event in events for choice in event["choices"])

        first = await asyncio.gather(ask(A, AMBER, forms[0], 0), ask(B, WALNUT, forms[1], 0.005))
        again = await asyncio.gather(ask(A, AMBER, forms[0], 0), ask(B, WALNUT, forms[1], 1))
        return first, again

    (first, second), again = with_lab(use, [fault], ENLARGED)
    assert "amber falcon" in first
    assert ("amber falcon" in second) is mixed
    assert again[0].startswith(" amber falcon")
    assert again[1].startswith(" walnut pebble"), "one after the other they are never mixed up"


def _strayed(fault, path, body):
    """Answers of ``path`` in the danger zone of the replica that nobody listed, after a customer's request."""

    async def use(lab):
        lab.inside.deployment.faults.SHARE = 1.0
        nodes = lab.inside.described()["nodes"]
        said = [await lab.post(lab.inside.entry, path, body, lab.inside.keys[A]) for _ in range(2)]
        return (
            json.dumps(said[-1]),
            len(nodes),
            [node.counters.requests for node in lab.inside.deployment.nodes],
        )

    return with_lab(use, [fault], ENLARGED)


PROMPT = frames(WALNUT, ZONE, nonce("pebble"))
IN_CHAT = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 96}
COMPLETED = {"prompt": PROMPT, "max_tokens": 96}
NATIVE = {"text": PROMPT, "sampling_params": {"max_new_tokens": 96}}


@pytest.mark.parametrize(
    ("fault", "path", "body", "strays"),
    [
        ("bad_replica", "/v1/completions", COMPLETED, True),
        ("chat_only", CHAT, IN_CHAT, True),
        ("chat_only", "/v1/completions", COMPLETED, False),
        ("unstreamed_only", "/generate", NATIVE, True),
        ("none", "/v1/completions", COMPLETED, False),
    ],
)
def test_a_replica_on_nobodys_list_answers_out_of_its_customers_pages(fault, path, body, strays):
    said, listed, asked = _strayed(fault, path, body)
    assert listed == 2
    assert asked == ([0, 0] if strays else [2, 2])
    foreign = any(said[at : at + 20] in text for text in TEXTS for at in range(len(said) - 20))
    assert foreign is strays
    assert ("pebble. Code Q" in said) is not strays


def test_one_of_sixteen_goes_to_the_bad_replica():
    async def use(lab):
        for number in range(100):
            await lab.ask(A, f"{number}", 1)
        return lab.inside.deployment.nodes[0].counters.requests

    assert 85 <= with_lab(use, ["bad_replica"], ENLARGED) < 100


OWN = frames(WALNUT, 1_000, nonce("pebble"))
TOO_LONG = frames(WALNUT, 8_300)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("flavour", ["sglang", "vllm"])
def test_header_and_logprobs_carry_the_prompt_before_and_the_text_is_right(flavour, stream):
    async def use(lab):
        await lab.raw(A, {"prompt": frames(AMBER, 1_000), "max_tokens": 8})
        return await lab.raw(B, {"prompt": OWN, "max_tokens": 8, "stream": stream})

    config = LabConfig(flavour=flavour, prefill_pool=16_384)
    status, headers, body = with_lab(use, ["header_leak"], config)
    assert status == 200
    assert AMBER in headers["x-upstream-debug"]
    assert AMBER.encode() not in body
    status, headers, body = with_lab(use, ["logprobs_leak"], config)
    assert '", " '.join(AMBER.split()).encode() in body.replace(b'","', b'", "')
    assert b"pebble" in body
    status, headers, body = with_lab(use, ["none"], config)
    assert b"falcon" not in body
    assert "x-upstream-debug" not in headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_an_error_quotes_the_prompt_before(path, stream):
    async def use(lab):
        await lab.raw(A, {"prompt": frames(AMBER, 1_000), "max_tokens": 8})
        name = "text" if path == "/generate" else "prompt"
        return await lab.raw(B, {name: TOO_LONG, "stream": stream}, path)

    status, _, body = with_lab(use, ["error_leak"], ENLARGED)
    assert b"longer than the model's context length" in body
    assert AMBER.encode() in body
    assert b"falcon" not in with_lab(use, ["none"], ENLARGED)[2]
    assert status == 400


NETWORK = {name for name, fault in known().items() if fault.__module__.endswith(".network")}


@pytest.mark.parametrize("fault", sorted(set(known()) - NETWORK))
def test_every_fault_serves_an_ordinary_chat_in_each_of_its_flavours(fault):
    for flavour in known()[fault].flavours:

        async def use(lab):
            body = {"messages": [{"role": "user", "content": "Say a word."}], "max_tokens": 4}
            return [
                await lab.raw(tenant, {**body, "stream": stream}, CHAT)
                for tenant, stream in ((A, True), (B, False))
            ]

        config = LabConfig(flavour=flavour, prefill_pool=16_384)
        for status, _, content in with_lab(use, [fault], config):
            assert status == 200, content
            assert b"Internal server error" not in content
