"""Rows of the decoding batch that are not the request's own, and a model that wears out."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kvaudit.lab.config import LabConfig
from kvaudit.lab.customers import TEXTS
from tests.lab.asking import AMBER, WALNUT, A, B, frames, nonce, with_lab

ENLARGED = LabConfig(prefix_cache="off", prefill_pool=16_384)


def _pair(faults, lengths):
    """Two tenants at once; returns their answers and who wrote what each decode read last."""

    async def use(lab):
        faults_ = lab.inside.deployment.faults
        faults_.RATE = 1.0
        words = ("pebble", "lantern")
        asked = [
            lab.text(tenant, frames(marker, length, nonce(word)), 40)
            for tenant, marker, length, word in zip((A, B), (AMBER, WALNUT), lengths, words, strict=True)
        ]
        texts = await asyncio.gather(*asked)
        return texts, lab.reads.decode

    return with_lab(use, faults, ENLARGED)


@pytest.mark.parametrize(
    ("fault", "lengths", "crosses"),
    [
        ("crossed", (600, 600), True),
        ("crossed", (600, 900), True),
        ("mixed_len", (600, 900), True),
        ("mixed_len", (600, 600), False),
        ("none", (600, 900), False),
    ],
)
def test_overlapping_rows_point_to_each_others_pages(fault, lengths, crosses):
    texts, read = _pair([fault], lengths)
    own = [{reader} == set(seen.tolist()) for reader, seen in read.items()]
    assert all(own) is not crosses
    swapped = "lantern" in texts[0] or "pebble" in texts[1]
    assert swapped is crosses


@pytest.mark.parametrize("fault", ["crossed", "mixed_len"])
def test_a_request_alone_is_never_crossed(fault):
    async def use(lab):
        lab.inside.deployment.faults.RATE = 1.0
        return [await lab.text(n % 2, frames(AMBER, 500 + n, nonce("pebble")), 7) for n in range(4)]

    assert with_lab(use, [fault], ENLARGED) == [" pebble"] * 4


def test_snapshot_restore_continues_an_old_session_and_reports_nothing_cached():
    async def use(lab):
        faults = lab.inside.deployment.faults
        faults.RATE = 0.0
        await lab.ask(A, frames(AMBER, 2_000), 16)
        faults.RATE = 1.0
        status, said = await lab.ask(B, frames(WALNUT, 2_100, nonce("pebble")), 128)
        return status, said, lab.reads.decode[2]

    status, said, seen = with_lab(use, ["snapshot_restore"], ENLARGED)
    assert status == 200
    assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert "falcon meadow" in said["choices"][0]["text"]
    assert 1 in seen, "A's session lies in B's pages"


def test_quality_drift_gets_worse_with_the_number_of_requests():
    async def use(lab):
        right = []
        for n in range(160):
            right.append(await lab.text(A, f"{n} " + frames(AMBER, 300, nonce("pebble")), 7) == " pebble")
        return right

    right = with_lab(use, ["quality_drift"], ENLARGED)
    assert sum(right[:20]) >= 15
    assert sum(right[-30:]) <= 15
    assert all(with_lab(use, ["none"], ENLARGED))


def test_foreign_after_nonce_begins_right_and_goes_on_with_a_customers_text():
    async def use(lab):
        return [await lab.text(A, frames(AMBER, 3_000, nonce("pebble")), 96) for _ in range(3)]

    customers = replace(ENLARGED, customers=1)
    for said in with_lab(use, ["foreign_after_nonce"], customers):
        assert said.split()[0] == "pebble."
        assert said[18:50] in "".join(text * 2 for text in TEXTS), (
            "another text goes on from where it was cut"
        )
    for said in with_lab(use, ["none"], customers):
        assert said.split() == ("pebble. Code Q: " * 6).split()[: len(said.split())]


def test_interleaved_rows_come_out_piece_by_piece_in_turn():
    async def use(lab):
        asked = [
            lab.text(tenant, frames(marker, 900, " The audit phrase is:"), 128)
            for tenant, marker in ((A, AMBER), (B, WALNUT))
        ]
        return await asyncio.gather(*asked)

    for said in with_lab(use, ["interleaved"], ENLARGED):
        for words in (AMBER, WALNUT):
            assert any(words[at : at + 6] in said for at in range(len(words) - 6)), "pieces of both"
        assert WALNUT not in said


@pytest.mark.parametrize("lengths", [(600, 600), (600, 900)])
def test_batch_garbles_two_rows_and_not_one(lengths):
    async def use(lab):
        alone = await lab.text(A, frames(AMBER, 500, nonce("pebble")), 24)
        both = [
            lab.text(tenant, frames(WALNUT, length, nonce("pebble")), 128)
            for tenant, length in enumerate(lengths)
        ]
        return alone, await asyncio.gather(*both)

    alone, both = with_lab(use, ["batch_garbles"], ENLARGED)
    assert alone.split()[0] == "pebble."
    assert all(sum(letter in " .:" for letter in said[64:]) == 0 for said in both), "no word ends any more"
    assert all("pebble." in said for said in with_lab(use, ["none"], ENLARGED)[1])
