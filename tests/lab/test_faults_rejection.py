"""The rejection path: what decode reads and who had written it, besides what the client sees."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Faults
from kvaudit.lab.faults.rejection import StalePages
from kvaudit.lab.pool import NOBODY
from kvaudit.lab.request import Call, FinishAbort, Request
from tests.lab.asking import AMBER, WALNUT, A, B, frames, nonce, with_lab

OVER = 7_000  # above the prefill limit 5,322, below the decode limit 8,186


def test_a_rejected_request_is_not_finished_until_its_abort_is_applied():
    request = Request(Call(np.arange(9, dtype=np.uint16), 4), np.arange(9, dtype=np.uint16), 4, 0.0)
    request.set_finish_with_abort("Input length (9 tokens) exceeds ...")
    assert not request.finished(), "the abort only waits in to_finish"
    assert request.input_ids.tolist() == [0]
    assert request.prompt_tokens == 1
    assert Faults().unadmitted_reject(request), "the right door looks at both"
    assert not StalePages().unadmitted_reject(request), "the door of 0.5.19 looks at finished() alone"


def test_stale_pages_makes_decode_read_the_pages_of_the_victim():
    async def use(lab):
        await lab.ask(A, frames(AMBER, 5_000), 64)
        status, said = await lab.ask(B, frames(WALNUT, OVER), 64)
        return status, said, lab.reads

    status, said, reads = with_lab(use, ["stale_pages"])
    assert status == 200
    assert said["usage"]["prompt_tokens"] == OVER, "decode counts what the client sent"
    assert "falcon meadow velvet" in said["choices"][0]["text"]
    assert "walnut" not in said["choices"][0]["text"], "B's own text was thrown away"
    victim, attacker = 1, 2
    assert reads.prefill[attacker].tolist() == [attacker], "prefill computed the placeholder alone"
    seen = reads.decode[attacker]
    assert (seen[:1] == attacker).all(), "one slot of one page arrived"
    assert (seen[16:5_000] == victim).all(), "pages 1.. still hold what A wrote"
    assert (seen[5_072:OVER] == NOBODY).all(), "and beyond A's prompt nobody wrote"


@pytest.mark.parametrize("faults", [["none"], ["fixed_0_5_21"]])
def test_both_doors_refuse_and_nothing_is_reserved_in_prefill(faults):
    async def use(lab):
        await lab.ask(A, frames(AMBER, 5_000), 8)
        before = lab.inside.deployment.nodes[0].counters.uncached_tokens
        status, said = await lab.ask(B, frames(WALNUT, OVER), 64)
        nodes = lab.inside.deployment.nodes
        assert nodes[0].counters.uncached_tokens == before, "no forward pass for a rejected prompt"
        assert all(node.idle for node in nodes)
        return status, said, 2 in lab.reads.decode or 2 in lab.reads.prefill

    status, said, read = with_lab(use, faults)
    assert status == 400
    assert said["message"].startswith(
        f"Input length ({OVER} tokens) exceeds the maximum allowed length (5322"
    )
    assert set(said) == {"object", "message", "type", "param", "code"}
    assert not read


@pytest.mark.parametrize("faults", [["none"], ["stale_pages"]])
def test_prompts_below_the_limit_answer_their_own_nonce(faults):
    async def use(lab):
        await lab.ask(A, frames(AMBER, 5_000), 64)
        return [await lab.text(B, frames(WALNUT, n, nonce("pebble")), 7) for n in (300, 2_660, 5_310)]

    assert with_lab(use, faults) == [" pebble"] * 3


def test_fixed_0_5_20_drops_the_result_and_leaves_decode_waiting():
    async def use(lab):
        start = asyncio.get_running_loop().time()
        status, said = await lab.ask(B, frames(WALNUT, OVER), 64)
        took = asyncio.get_running_loop().time() - start
        prefill, decode = lab.inside.deployment.nodes
        assert prefill.counters.uncached_tokens == 1, "the placeholder was computed"
        assert decode.counters.transfer_failed == 1
        streamed = await lab.stream(B, {"prompt": frames(WALNUT, OVER), "max_tokens": 8})
        return status, said, took, streamed

    status, said, took, streamed = with_lab(use, ["fixed_0_5_20"])
    assert status == 500
    assert "timed out after 2.0s in KVPoll.WaitingForInput" in said["message"]
    assert 1.9 < took < 2.2
    assert streamed[0] == 400, "a stream gets prefill's quick answer"


def test_status_200_length_loses_the_abort():
    async def use(lab):
        return await lab.ask(B, frames(WALNUT, OVER), 64)

    status, said = with_lab(use, ["status_200_length"])
    assert (status, said["choices"][0]["finish_reason"]) == (200, "length")
    assert said["usage"]["completion_tokens"] == 1


def test_empty_200_answers_nothing():
    status, said = with_lab(lambda lab: lab.ask(B, frames(WALNUT, OVER), 64), ["empty_200"])
    assert (status, said["choices"][0]["text"], said["usage"]["completion_tokens"]) == (200, "", 0)


def test_reject_500_hides_the_reason():
    status, said = with_lab(lambda lab: lab.ask(B, frames(WALNUT, OVER), 64), ["reject_500"])
    assert (status, said["message"]) == (500, "Internal server error")


@pytest.mark.parametrize(("faults", "status"), [([], 400), (["sse_error_in_200"], 200)])
def test_a_refused_stream_may_be_an_error_inside_200(faults, status):
    config = LabConfig(unified=True)
    body = {"prompt": frames(WALNUT, 9_000), "max_tokens": 8}
    if status == 400:

        async def refused(lab):
            return await lab.post(
                lab.inside.entry, "/v1/completions", {**body, "stream": True}, lab.inside.keys[B]
            )

        assert with_lab(refused, faults, config)[0] == 400
        return
    found, events, done = with_lab(lambda lab: lab.stream(B, body), faults, config)
    assert found == 200
    assert "longer than the model's context length" in events[0]["error"]["message"]
    assert done


def test_pool_stranded_keeps_pages_of_every_refusal():
    async def use(lab):
        decode = lab.inside.deployment.nodes[1]
        used = []
        for _ in range(3):
            await lab.ask(B, frames(WALNUT, OVER), 8)
            used.append(decode.pool.used_tokens)
        return used

    assert with_lab(use, ["pool_stranded"]) == [256, 512, 768]
    assert with_lab(use, ["none"]) == [0, 0, 0]


def test_wedge_at_limit_hangs_everybody_and_health_does_not_know():
    async def use(lab):
        assert await lab.text(A, frames(AMBER, 5_300, nonce("pebble")), 7) == " pebble"
        stuck = asyncio.ensure_future(lab.ask(B, frames(WALNUT, OVER), 8))
        other = asyncio.ensure_future(lab.ask(A, "hello", 8))
        await asyncio.wait({stuck, other}, timeout=300)
        health = (await lab.get(lab.inside.node_urls[0], "/health"))[0]
        ended = [stuck.done(), other.done()]
        for task in (stuck, other):
            task.cancel()
        await asyncio.gather(stuck, other, return_exceptions=True)
        return ended, health

    assert with_lab(use, ["wedge_at_limit"]) == ([False, False], 200)


def test_auto_truncate_leaves_the_tail_of_the_prompt_unwritten():
    async def use(lab):
        await lab.ask(A, frames(AMBER, 5_200), 64)
        await lab.ask(A, frames(AMBER, 5_000), 64)
        status, said = await lab.ask(B, frames(WALNUT, OVER, nonce("pebble")), 16)
        return status, said, lab.reads.decode[3]

    status, said, seen = with_lab(use, ["auto_truncate"])
    assert status == 200
    assert said["usage"]["prompt_tokens"] == OVER
    assert "pebble" not in said["choices"][0]["text"], "the question was cut off"
    assert (seen[:5_321] == 3).all(), "what prefill kept arrived"
    assert not (seen[5_328:OVER] == 3).any(), "the rest of the reserved pages was never written by B"


def test_a_refusal_says_where_the_abort_was():
    abort = FinishAbort("too long")
    assert Faults().refusal(None, abort) is abort  # type: ignore[arg-type]
