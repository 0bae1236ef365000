"""Which build, whose pools, and whether freed pages go out again at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.prober.serving import serving_of
from kvaudit.auditor.readings import EngineFacts, RankPool, read, unknown

NODE = EngineFacts(
    "sglang",
    version=read("0.5.22", "GET /server_info"),
    role=read("unified", "GET /server_info"),
    pool=read(16_384, "GET /server_info"),
    context=read(8_192, "GET /server_info"),
    process=read("1700000000", "GET /metrics"),
    settings={"page_size": read(64, "GET /server_info")},
    conditions={"radix_cache": False},
)
PREFILL = replace(NODE, role=read("prefill", "GET /server_info"))
DECODE = replace(NODE, role=read("decode", "GET /server_info"), pool=read(40_000, "GET /server_info"))


def seen(*nodes: EngineFacts, role: str = "") -> list[NodeSeen]:
    return [NodeSeen(f"n{number}", "http://10.0.0.1", role, facts) for number, facts in enumerate(nodes)]


def build(*nodes: EngineFacts) -> str:
    return serving_of(seen(*nodes), alone=False).build


def test_a_build_is_what_evidence_belongs_to() -> None:
    """Not the process, nor how many there are, nor a pool that moved; its version, arguments and roles."""
    assert len(build(NODE)) == 64
    same = [
        replace(NODE, process=read("1800000000", "GET /metrics")),
        replace(NODE, pool=read(16_100, "GET /server_info")),
    ]
    assert {build(NODE, each) for each in same} == {build(NODE)}
    other = [
        replace(NODE, version=read("0.5.23", "GET /server_info")),
        replace(NODE, settings={"page_size": read(1, "GET /server_info")}),
        replace(NODE, pool=read(8_000, "GET /server_info")),  # no longer holds a context
        PREFILL,
    ]
    assert len({build(NODE), *map(build, other)}) == 5
    assert build(replace(NODE, version=unknown("not shown"))) == ""
    assert build() == ""


def test_a_build_is_said_in_a_few_words() -> None:
    said = serving_of(seen(PREFILL, DECODE), alone=False, where="drained")
    assert said.said == "sglang 0.5.22, prefill and decode, page 64"
    assert said.where == "drained"
    assert [(role.name, role.pool) for role in said.roles] == [("prefill", 16_384), ("decode", 40_000)]


def test_ranks_of_one_process_are_one_pool() -> None:
    ranks = tuple(RankPool(str(number), read(10_000, "GET /server_info")) for number in range(4))
    (role,) = serving_of(seen(replace(NODE, ranks=ranks)), alone=True).roles
    assert role.pool == 40_000
    unread = serving_of(seen(NODE, replace(NODE, pool=unknown("not shown"))), alone=False)
    assert unread.roles[0].pool is None


def test_a_role_that_no_process_tells_is_the_declared_one() -> None:
    """vLLM does not say its role; a pair that counts every prompt on both sides would look half as busy with us."""
    silent = replace(NODE, role=unknown("not shown"))
    pair = [*seen(silent, role="prefill"), *seen(silent, role="decode")]
    assert [role.name for role in serving_of(pair, alone=False).roles] == ["prefill", "decode"]
    assert [role.name for role in serving_of(seen(silent, silent), alone=False).roles] == ["unified"]


@pytest.mark.parametrize(
    ("facts", "alone", "several", "stack"),
    [
        (NODE, True, False, True),
        (NODE, False, False, False),  # behind an entry some replica answers
        (NODE, True, True, False),
        (
            replace(NODE, conditions={"radix_cache": True}),
            True,
            False,
            False,
        ),  # pages become free by eviction
        (replace(NODE, conditions={}), True, False, False),
        (replace(NODE, settings={"page_size": read(1, "GET /server_info")}), True, False, False),
        (replace(NODE, engine="vllm"), True, False, False),
        (PREFILL, True, False, False),
    ],
)
def test_only_a_single_unified_sglang_without_a_prefix_cache_is_a_stack(
    facts: EngineFacts, alone: bool, several: bool, stack: bool
) -> None:
    serving = serving_of(seen(facts), alone=alone, several=several)
    assert serving.last_freed_first is stack
    assert bool(serving.unsure) is several
