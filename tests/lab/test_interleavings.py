"""The property that the lab stands on: in a correct engine no token ever comes from a page that the
request did not write; and in every leaking fault the same witness sees it happen."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from tests.lab.interleavings import TINY, run

LIVES = int(os.environ.get("KVAUDIT_LAB_LIVES", "25"))
"""Lives per block and configuration, twenty times; `make soak` asks for more."""

CONFIGURATIONS = {
    "disaggregated, no cache": replace(TINY, prefix_cache="off"),
    "disaggregated, salted cache and second tier": TINY,
    "unified, salted cache": replace(TINY, unified=True),
    "decode gives up early": replace(TINY, waiting_timeout=0.006),
    "first in, first out": replace(TINY, order="fifo", second_tier=False),
    "SGLang's prefill and decode": replace(TINY, order="sglang-pd"),
    "vLLM's queue": replace(TINY, order="vllm-lru", prefix_cache="off"),
}


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_correct_engine_reads_only_what_the_request_wrote(config, block):
    statuses = set()
    for seed in range(block * 100_000, block * 100_000 + LIVES):  # 24 requests each
        witness, answers, deployment = run(seed, config)
        assert witness.foreign == [], f"seed {seed}"
        assert witness.reads > 20, "the witness saw nothing"
        for answer in answers:
            assert not isinstance(answer, Exception) or isinstance(answer, asyncio.CancelledError), answer
        statuses |= {answer[0] for answer in answers if isinstance(answer, tuple)}
        for node in deployment.nodes:
            assert node.idle, f"seed {seed}: {node.role} still holds pages or requests"
    assert {200, 400} <= statuses, "the lives were too quiet to prove anything"
    assert config.waits > 0.01 or 500 in statuses, "nobody timed out"


LEAKS = {
    "stale_pages": TINY,
    "short_transfer": replace(TINY, prefix_cache="off"),
    "late_writer": replace(TINY, prefix_cache="off"),
    "lease_expiry": replace(TINY, prefix_cache="off"),
    "crossed": TINY,
    "mixed_len": TINY,
    "snapshot_restore": TINY,
    "auto_truncate": TINY,
    "phantom_cache": TINY,
    "shared_prefix": TINY,
    "salt_ignored": TINY,
    "tier_salt_dropped": TINY,
    "tier_swaps": TINY,
    "unwritten_hash": TINY,
    "interleaved": TINY,
    "middle_pages": replace(TINY, prefix_cache="off"),
    "all_but_last_page": replace(TINY, prefix_cache="off"),
    "bad_replica": TINY,
}


@pytest.mark.parametrize("fault", LEAKS)
def test_the_same_witness_finds_every_leak(fault):
    crowd = (120, 0.6) if fault == "late_writer" else (24, 0.3)  # a race needs many who leave
    for seed in range(60):
        witness, _, _ = run(seed, LEAKS[fault], [fault], *crowd)
        if witness.foreign:
            return
    pytest.fail(f"{fault}: 60 lives and nobody read a foreign page")
