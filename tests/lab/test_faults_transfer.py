"""Pages that never come, come too late, or are read too late: who had written what decode read."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from kvaudit.lab.config import LabConfig
from tests.lab.asking import AMBER, WALNUT, A, B, frames, nonce, with_lab

NO_CACHE = LabConfig(prefix_cache="off", prefill_pool=16_384)


def test_short_transfer_leaves_all_pages_after_the_first_chunk_to_their_last_writer():
    async def use(lab):
        faults = lab.inside.deployment.faults
        faults.RATE = 0.0  # the victim's pages all arrive
        await lab.ask(A, frames(AMBER, 5_000), 64)
        faults.RATE = 1.0
        status, said = await lab.ask(B, frames(WALNUT, 5_000, nonce("pebble")), 64)
        return status, said, lab.reads

    status, said, reads = with_lab(use, ["short_transfer"], NO_CACHE)
    assert status == 200
    assert "pebble" not in said["choices"][0]["text"], "the question itself never arrived"
    seen = reads.decode[2]
    assert (seen[:1024] == 2).all(), "one chunk of 64 pages came"
    assert (seen[1024:5_000] == 1).all(), "the rest still holds A's text"


def test_a_correct_decode_counts_the_pages():
    async def use(lab):
        deployment = lab.inside.deployment
        deployment.faults.pages_to_send = lambda pages, chunk: pages[:chunk]
        return await lab.ask(B, frames(WALNUT, 5_000), 8)

    status, said = with_lab(use, ["none"], NO_CACHE)
    assert status == 500
    assert "64 pages arrived, 313 were reserved" in said["message"]


def _cancel_in_flight(faults):
    """A goes away while its pages are being written; B gets those pages; returns B's text and reads."""

    async def use(lab):
        prefill, decode = lab.inside.deployment.nodes
        leaving = asyncio.ensure_future(lab.ask(A, frames(AMBER, 2_000), 64))
        while not prefill.stages["prefill_inflight"]:
            await asyncio.sleep(0.001)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await asyncio.sleep(0.001)
        held = decode.pool.used_tokens
        text = await lab.text(B, frames(WALNUT, 600, " The audit phrase is:"), 256)
        await asyncio.sleep(5)
        assert decode.idle
        return held, text, lab.reads.decode[2]

    return with_lab(use, faults, NO_CACHE)


def test_late_writer_writes_the_old_words_over_the_next_owner():
    held, text, seen = _cancel_in_flight(["late_writer"])
    assert held == 0, "the pages were freed while the writer was at work"
    assert set(np.unique(seen)) == {1, 2}, "A's ticket stands in B's pages"
    assert "falcon" in text


def test_a_correct_decode_keeps_the_pages_for_the_writer():
    held, text, seen = _cancel_in_flight(["none"])
    assert held > 2_000, "deferred release"
    assert set(np.unique(seen)) == {2}
    assert "falcon" not in text


def test_lease_expiry_frees_pages_before_the_slow_reader_comes():
    async def use(lab):
        prompts = [frames(AMBER if n % 2 else WALNUT, 600 + 40 * n, nonce("pebble")) for n in range(14)]

        async def later(n, prompt):
            await asyncio.sleep(0.006 * n)
            await lab.ask(n % 2, prompt, 16)

        await asyncio.gather(*(later(n, prompt) for n, prompt in enumerate(prompts)))
        prefill, decode = lab.inside.deployment.nodes
        foreign = {reader for reader, seen in lab.reads.decode.items() if (seen[:500] != reader).any()}
        await asyncio.sleep(2)
        return prefill.counters, decode.counters, foreign, prefill.idle

    prefill, decode, foreign, idle = with_lab(use, ["lease_expiry"], NO_CACHE)
    assert prefill.expired_leases > 0
    assert prefill.reads_after_expiry == prefill.expired_leases
    assert foreign, "somebody read pages that the next prompt had been written into"
    assert decode.transfer_failed == 0, "and decode has noticed nothing"
    assert idle


def test_one_request_at_a_time_never_meets_an_expired_lease():
    async def use(lab):
        for n in range(4):
            assert await lab.text(n % 2, frames(AMBER, 2_000, nonce("pebble")), 7) == " pebble"
        return lab.inside.deployment.nodes[0].counters.expired_leases

    assert with_lab(use, ["lease_expiry"], NO_CACHE) == 0


def _second_after_a_whole_one(fault, tokens, tail, config=NO_CACHE, **set_to):
    """A's prompt arrives whole, then B's as the fault has it: B's answer, and who wrote what B read."""

    async def use(lab):
        faults = lab.inside.deployment.faults
        if fault == "none":
            lost = None
        else:
            lost, faults.pages_lost = faults.pages_lost, lambda request, pages, size: ()
        await lab.ask(A, frames(AMBER, tokens), 64)
        if lost is not None:
            faults.pages_lost = lost
        for name, value in set_to.items():
            setattr(faults, name, value)
        text = await lab.text(B, frames(WALNUT, tokens, tail), 64)
        return text, lab.reads.decode[2]

    return with_lab(use, [fault], config)


def test_middle_pages_answers_the_nonce_out_of_pages_that_are_a_third_a_strangers():
    text, seen = _second_after_a_whole_one("middle_pages", 4_800, nonce("pebble"), RATE=1.0)
    assert text.split()[0] == "pebble."
    assert (seen[:1_600] == 2).all()
    assert (seen[1_600:3_200] == 1).all()
    assert (seen[3_200:4_800] == 2).all()


@pytest.mark.parametrize(
    ("tail", "foreign"), [(nonce("pebble"), False), (" Record 0042. The audit phrase is:", True)]
)
def test_all_but_last_page_blinds_the_nonce_and_not_the_question_for_the_phrase(tail, foreign):
    config = replace(NO_CACHE, page=64)
    text, seen = _second_after_a_whole_one("all_but_last_page", 4_800, tail, config, RATE=1.0)
    assert (seen[: 4_800 - 64] == 1).all()
    assert (seen[4_800 - 64 : 4_800] == 2).all()
    assert ("amber falcon meadow" in text) is foreign
    assert ("pebble" in text) is not foreign


@pytest.mark.parametrize(
    ("tokens", "damaged"), [(2_000, True), (2_016, True), (2_017, False), (2_047, False), (1_000, False)]
)
def test_residue_damages_by_the_length_modulo_the_page(tokens, damaged):
    _, seen = _second_after_a_whole_one("residue", tokens, nonce("pebble"))
    assert (seen[: tokens - 64] == (1 if damaged else 2)).all()


def test_dwell_loses_the_first_transfer_after_a_pause_and_no_other():
    async def use(lab):
        await lab.ask(A, frames(AMBER, 2_000), 8)
        found = []
        for pause in (50, 70, 1):
            await asyncio.sleep(pause)
            await lab.ask(B, frames(WALNUT, 2_000, nonce("pebble")), 8)
            found.append(set(lab.reads.decode[len(found) + 2].tolist()) - {len(found) + 2})
        return found

    before, after, again = with_lab(use, ["dwell"], NO_CACHE)
    assert before == set()
    assert after == {2}
    assert again == set()
