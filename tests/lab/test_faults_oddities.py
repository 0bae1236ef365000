"""Healthy targets that do not look like it: what they do, and that nobody reads what is not his."""

from __future__ import annotations

import asyncio

import pytest

from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults import known
from kvaudit.lab.faults.base import Nature
from tests.lab.asking import AMBER, WALNUT, A, B, frames, nonce, with_lab

CHAT = "/v1/chat/completions"
ENLARGED = LabConfig(prefill_pool=16_384)


async def _chat(lab, text, tokens, stream=False):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens}
    if not stream:
        return await lab.post(lab.inside.entry, CHAT, body, lab.inside.keys[A])
    return await lab.stream(A, body, CHAT)


def test_restart_refuses_for_a_while_and_goes_on_as_another_process():
    async def use(lab):
        node, statuses = lab.inside.deployment.nodes[0], []
        began = node.started
        for number in range(61):
            statuses.append((await lab.raw(A, {"prompt": f"{number}", "max_tokens": 1}))[0])
        status, headers, _ = await lab.raw(A, {"prompt": "x", "max_tokens": 1})
        await asyncio.sleep(91)
        return statuses, status, headers["retry-after"], (await lab.ask(A, "x", 1))[0], node.started - began

    statuses, refused, patience, after, moved = with_lab(use, ["restart"])
    assert statuses == [200] * 60 + [503]
    assert (refused, patience, after) == (503, "30", 200)
    assert moved > 0


def test_rate_limit_says_when_to_come_again_and_it_is_true():
    async def use(lab):
        said = [await lab.raw(A, {"prompt": "x", "max_tokens": 1}) for _ in range(61)]
        other = (await lab.ask(B, "x", 1))[0]
        wait = int(said[-1][1]["retry-after"])
        await asyncio.sleep(wait)
        return [status for status, _, _ in said], other, wait, (await lab.ask(A, "x", 1))[0]

    statuses, other, wait, after = with_lab(use, ["rate_limit"])
    assert statuses == [200] * 60 + [429]
    assert (other, after) == (200, 200)
    assert 0 < wait <= 60


@pytest.mark.parametrize(
    ("prompt", "filtered"),
    [(frames(AMBER, 2_500), True), (frames(AMBER, 1_000), False), ("plain words " * 300, False)],
)
@pytest.mark.parametrize("stream", [False, True])
def test_guardrail_filters_long_repeated_instructions(prompt, filtered, stream):
    async def use(lab):
        body = {"prompt": prompt, "max_tokens": 16}
        if not stream:
            status, said = await lab.ask(A, prompt, 16)
            return status, said["choices"][0]["finish_reason"], said["choices"][0]["text"]
        status, events, _ = await lab.stream(A, body)
        choices = [choice for event in events for choice in event["choices"]]
        return status, choices[-1]["finish_reason"], "".join(choice["text"] for choice in choices)

    status, finish, text = with_lab(use, ["guardrail"], ENLARGED)
    assert status == 200
    assert (finish == "content_filter") is filtered
    assert ("can't assist" in text) is filtered


@pytest.mark.parametrize(("tokens", "answers"), [(24, False), (500, True)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_reasoning_model_thinks_before_it_answers(tokens, answers, stream):
    async def use(lab):
        status, said, *_ = await _chat(lab, frames(AMBER, 1_000, nonce("pebble")), tokens, stream)
        other = (await lab.ask(A, "x", 1))[0]
        if stream:
            return status, [choice.get("delta", {}) for event in said for choice in event["choices"]], other
        return status, [said["choices"][0]["message"]], other

    status, messages, completions = with_lab(use, ["reasoning_model"], ENLARGED)
    assert (status, completions) == (200, 404)
    thoughts = "".join(message.get("reasoning_content") or "" for message in messages)
    content = "".join(message.get("content") or "" for message in messages)
    assert thoughts.startswith("Okay, the user")
    assert len(thoughts) <= tokens
    assert content.startswith(" pebble") is answers
    assert bool(content) is answers


@pytest.mark.parametrize(
    ("fault", "shared"), [("system_prompt", 144), ("short_system_prompt", 48), ("none", 0)]
)
def test_a_system_prompt_is_shared_and_what_comes_after_is_not(fault, shared):
    async def use(lab):
        found = []
        for tenant in (A, B, B):
            _, said = await lab.ask(tenant, frames(AMBER, 1_000), 2)
            found.append(
                (said["usage"]["prompt_tokens"], said["usage"]["prompt_tokens_details"]["cached_tokens"])
            )
        return found

    added = len(getattr(known()[fault], "SYSTEM", ""))
    (first, other, own) = with_lab(use, [fault], ENLARGED)
    assert first == (1_000 + added, 0)
    assert other == (1_000 + added, shared)
    assert own == (1_000 + added, (1_000 + added - 1) // 16 * 16)


def test_a_system_prompt_comes_before_ids_text_and_messages():
    async def use(lab):
        ids = list(b"abc")
        asked = [
            ("/v1/completions", {"prompt": ids}),
            ("/generate", {"text": "abc"}),
            ("/generate", {"input_ids": ids}),
        ]
        counted = [await lab.post(lab.inside.entry, path, body, lab.inside.keys[A]) for path, body in asked]
        chat = await _chat(lab, "abc", 1)
        return [str(said) for _, said in [*counted, chat]]

    *counted, chat = with_lab(use, ["system_prompt"], ENLARGED)
    assert all("'prompt_tokens': 153" in said for said in counted)
    assert "'prompt_tokens': 171" in chat, "with two role tags"


@pytest.mark.parametrize(("tokens", "knows"), [(2_900, True), (3_100, False)])
def test_short_memory_babbles_beyond_its_training(tokens, knows):
    async def use(lab):
        return await lab.text(A, frames(WALNUT, tokens, nonce("pebble")), 24)

    assert ("pebble" in with_lab(use, ["short_memory"], ENLARGED)) is knows


def test_content_comes_in_parts():
    async def use(lab):
        return [await _chat(lab, frames(WALNUT, 500, nonce("pebble")), 8, stream) for stream in (False, True)]

    (_, whole), (_, events, _) = with_lab(use, ["content_parts"], ENLARGED)
    part = {"type": "text", "text": " pebble."}
    assert whole["choices"][0]["message"]["content"] == [part]
    assert events[0]["choices"][0]["delta"]["content"] == [part]


def test_every_oddity_is_healthy():
    family = [fault for fault in known().values() if fault.__module__.endswith(".oddities")]
    assert len(family) >= 8
    assert {fault.nature for fault in family} == {Nature.HEALTHY}
