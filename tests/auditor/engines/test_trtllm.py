"""The TensorRT-LLM adapter: gauges that are 0 or absent, processes, and the list that empties."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvaudit.auditor.engines import get
from kvaudit.auditor.engines.answers import Step
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.readings import EngineFacts, State
from tests.auditor.engines import payloads
from tests.auditor.engines.payloads import STATISTICS, Served, answers, trtllm_metrics, trtllm_server

TRTLLM = get("trtllm")


def facts(payload: Served) -> EngineFacts:
    return TRTLLM.facts(answers(payload))


def scraped(text: str) -> EngineFacts:
    return facts(trtllm_server("1.3.0rc29", {"/prometheus/metrics": text}))


def test_is_an_engine_that_drains_only_as_a_last_resort() -> None:
    assert isinstance(TRTLLM, Adapter)
    assert [step for step in TRTLLM.plan if step.destructive] == [
        Step("/metrics", unless="/prometheus/metrics", destructive=True)
    ]
    assert TRTLLM.plan[-1].destructive
    assert "/perf_metrics" not in {*TRTLLM.gets, *(step.path for step in TRTLLM.plan)}


@pytest.mark.parametrize(
    ("build", "version", "context", "pool"),
    [
        (payloads.trtllm_1_3, "1.3.0rc29", 16_384, 37_760),
        (lambda: payloads.trtllm_1_3(stats=False), "1.3.0rc29", None, None),
        (payloads.trtllm_drained, "1.2.1", None, 3_240_192),
        (payloads.trtllm_1_1, "1.1.0", None, None),
    ],
)
def test_reads_each_release(
    build: Callable[[], Served], version: str, context: int | None, pool: int | None
) -> None:
    payload = build()
    found = facts(payload)
    assert TRTLLM.recognises(answers(payload))
    assert found.kind == "node"
    assert found.version.value == version
    assert found.context.value == context
    assert found.pool.value == pool
    assert not found.input_limit.known
    assert not found.role.known
    assert found.model.value == "Qwen3-8B"


def test_the_context_is_only_what_was_configured() -> None:
    found = facts(payloads.trtllm_1_3())
    assert found.context.state is State.DECLARED
    assert any("low confidence" in note for note in found.notes)


def test_a_pool_below_the_context_is_explained() -> None:
    found = scraped(trtllm_metrics(blocks=100.0))
    assert found.pool.value == 3200
    assert any("reduces its limit" in note for note in found.notes)


def test_settings_in_shared_names() -> None:
    found = facts(payloads.trtllm_1_3())
    assert found.setting("tp_size").value == "1"
    assert found.setting("kv_cache_dtype").value == "auto"
    assert found.setting("page_size").value == 32
    assert found.setting("max_batch_size").value == 32
    assert found.conditions == {"block_reuse": True, "prefix_caching": True}
    assert found.process.value == "pid 1739"


class TestGauges:
    def test_zero_is_unknown(self) -> None:
        pool = scraped(trtllm_metrics(blocks=0.0)).pool
        assert not pool.known
        assert "max_blocks" in pool.source

    def test_absent_says_what_to_switch_on(self) -> None:
        pool = facts(payloads.trtllm_1_3(stats=False)).pool
        assert not pool.known
        assert "enable_iter_perf_stats" in pool.source

    def test_a_factor_alone_is_unknown(self) -> None:
        text = "\n".join(line for line in trtllm_metrics().splitlines() if "tokens_per_block" not in line)
        assert not scraped(text).pool.known

    def test_processes_are_ranks_and_the_smallest_counts(self) -> None:
        found = scraped(trtllm_metrics(pid="1") + trtllm_metrics(pid="2", blocks=1000.0))
        assert [(rank.rank, rank.pool.value) for rank in found.ranks] == [("1", 37_760), ("2", 32_000)]
        assert found.pool.value == 32_000

    def test_factors_of_two_processes_are_never_multiplied(self) -> None:
        one = "\n".join(
            line for line in trtllm_metrics(pid="1").splitlines() if "tokens_per_block" not in line
        )
        two = "\n".join(line for line in trtllm_metrics(pid="2").splitlines() if "max_blocks" not in line)
        assert not scraped(one + "\n" + two).pool.known

    def test_two_series_of_one_process_give_the_smaller(self) -> None:
        text = trtllm_metrics() + 'trtllm_kv_cache_max_blocks{pid="1739",model_name="b"} 10.0\n'
        assert scraped(text).pool.value == 320

    @pytest.mark.parametrize("value", ["NaN", "-1180", "1e30", "+Inf", "1180.5", "x"])
    def test_nonsense_is_unknown(self, value: str) -> None:
        text = trtllm_metrics().replace("1180.0", value)
        assert not scraped(text).pool.known


class TestDrained:
    def test_says_that_it_took_the_statistics(self) -> None:
        assert any("handed" in note or "hands" in note for note in facts(payloads.trtllm_drained()).notes)

    def test_empty_is_unknown_and_says_why_it_may_be(self) -> None:
        pool = facts(payloads.trtllm_drained([])).pool
        assert not pool.known
        assert "another reader" in pool.source

    def test_the_smallest_of_the_list_counts(self) -> None:
        second: dict[str, Any] = {"kvCacheStats": {"maxNumBlocks": 10, "tokensPerBlock": 32}}
        assert facts(payloads.trtllm_drained([*STATISTICS, second])).pool.value == 320

    @pytest.mark.parametrize("blocks", [0, None, -3, True, 1e30, "many", [7]])
    def test_nonsense_is_unknown(self, blocks: object) -> None:
        broken = [{"kvCacheStats": {"maxNumBlocks": blocks, "tokensPerBlock": 32}}]
        assert not facts(payloads.trtllm_drained(broken)).pool.known

    def test_several_pools_are_of_low_confidence(self) -> None:
        item = STATISTICS[0] | {"kvCacheIterationStatsByPoolGroup": {"0": {}, "1": {}}}
        assert any("several KV pools" in note for note in facts(payloads.trtllm_drained([item])).notes)

    def test_not_used_where_prometheus_answered(self) -> None:
        payload = payloads.trtllm_1_3(stats=False)
        payload["/metrics"] = (200, json.dumps(STATISTICS).encode(), "application/json")
        assert not facts(payload).pool.known


class TestRouters:
    def test_the_disaggregated_server_is_a_router(self) -> None:
        payload = payloads.trtllm_disaggregated()
        found = facts(payload)
        assert TRTLLM.recognises(answers(payload))
        assert found.kind == "router"
        assert not found.version.known
        assert not found.pool.known

    def test_a_worker_with_cluster_information_stays_a_worker(self) -> None:
        payload = payloads.trtllm_1_3()
        payload["/cluster_info"] = (200, b"{}", "application/json")
        assert facts(payload).kind == "node"


def test_other_engines_are_not_recognised() -> None:
    for build in (
        payloads.sglang_prefill_0_5_19,
        payloads.sglang_router,
        payloads.vllm_recorded,
        payloads.vllm_development,
        payloads.vllm_0_8_5,
    ):
        assert not TRTLLM.recognises(answers(build())), build.__name__
