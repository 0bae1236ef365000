"""The vLLM adapter against recorded answers and the shapes of older releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvaudit.auditor.engines import get
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.readings import EngineFacts, fingerprint, if_uniform
from tests.auditor.engines import payloads
from tests.auditor.engines.payloads import Served, answers, cache_info, vllm_server

VLLM = get("vllm")


def facts(payload: Served) -> EngineFacts:
    return VLLM.facts(answers(payload))


def of(line: str, *, version: str = "0.32.0", context: int = 2048) -> EngineFacts:
    return facts(vllm_server(version, context, line))


def uniform(found: EngineFacts) -> int | None:
    """The pool once the operator has declared that all layers keep one kind of cache."""
    return if_uniform(found).pool.value


def test_is_an_engine() -> None:
    assert isinstance(VLLM, Adapter)
    asked_first = {step.path for step in VLLM.plan if step.identifies}
    assert "/metrics" not in asked_first  # it would drain TensorRT-LLM's


@pytest.mark.parametrize(
    ("build", "version", "context", "pool"),
    [
        (payloads.vllm_recorded, "0.32.0", 2048, 1_048_576 - 128),
        (payloads.vllm_0_8_5, "0.8.5", 8192, None),
        (payloads.vllm_0_19, "0.19.1", 8192, None),
        (payloads.vllm_0_27_1_override_16, "0.27.1", 2048, 1920),
        (payloads.vllm_over17, "0.32.0", 2048, 2048),
        (payloads.vllm_dp2, "0.32.0", 2048, 1_048_576 - 128),
        (lambda: payloads.vllm_dp2(sized=False), "0.19.1", 2048, None),
        (payloads.vllm_hybrid, "0.32.0", 4096, 12900 - 128),
        (payloads.vllm_nixl, "0.32.0", 2048, 15984),
    ],
)
def test_reads_each_release(
    build: Callable[[], Served], version: str, context: int, pool: int | None
) -> None:
    payload = build()
    found = facts(payload)
    assert VLLM.recognises(answers(payload))
    assert found.kind == "node"
    assert found.version.value == version
    assert found.context.value == context
    assert found.input_limit.value == context  # one output token must fit
    assert found.pool.value == pool
    assert not found.role.known


def test_a_recorded_server_in_full() -> None:
    found = facts(payloads.vllm_recorded())
    assert found.model.value == "tiny-llama"
    assert found.process.value == "1795984739.52"
    assert found.setting("page_size").value == "128"
    assert found.setting("kv_cache_dtype").value == "auto"
    assert not found.setting("num_gpu_blocks_override").known
    assert found.conditions["nixl"] is False
    assert found.conditions["prefix_caching"] is True
    assert found.conditions["hybrid_kv"] is False
    assert "pd_disaggregation" not in found.conditions  # no NIXL does not exclude other connectors
    assert found.features["kv_cache_size_tokens"] is True
    assert found.exposures == ()
    assert found.counters["vllm:num_requests_running"] == 0.0


class TestWithoutKey:
    def test_is_recognised_before_metrics_are_asked(self) -> None:
        payload = payloads.vllm_recorded(key=False)
        seen = answers(payload)
        identifying = {step.path for step in VLLM.plan if step.identifies}
        assert VLLM.recognises({path: answer for path, answer in seen.items() if path in identifying})

    def test_context_is_unknown_and_says_why(self) -> None:
        found = facts(payloads.vllm_recorded(key=False))
        assert found.pool.value == 1_048_448
        assert not found.context.known
        assert "401" in found.context.source
        assert not found.input_limit.known
        assert any("key" in note for note in found.notes)

    def test_a_server_that_refuses_everything_is_nobody(self) -> None:
        assert not VLLM.recognises(answers(payloads.served({}, fallback=payloads.UNAUTHORIZED)))


class TestPool:
    def test_none_is_unknown_and_names_the_release(self) -> None:
        pool = facts(payloads.vllm_0_8_5()).pool
        assert not pool.known
        assert "0.8" in pool.source

    @pytest.mark.parametrize("value", ["None", "0", "-5", "nan", "1e30", "", "12.5", "many"])
    def test_nonsense_in_the_size_falls_back_and_in_the_blocks_is_unknown(self, value: str) -> None:
        line = cache_info(kv_cache_size_tokens=value, num_gpu_blocks=value)
        assert not of(line).pool.known
        assert uniform(of(cache_info(kv_cache_size_tokens=value, num_gpu_blocks=100))) == 1584

    def test_unknown_block_size_leaves_the_pool_unknown(self) -> None:
        line = 'vllm:cache_config_info{engine="0",kv_cache_size_tokens="4096"} 1.0\n'
        pool = of(line).pool
        assert not pool.known
        assert "block size" in pool.source

    def test_the_larger_of_two_block_sizes_is_lost(self) -> None:
        line = cache_info(block_size=4, effective_attention_block_size=256, kv_cache_size_tokens=10_000)
        assert of(line).pool.value == 10_000 - 256

    def test_a_pool_of_one_block_is_no_pool(self) -> None:
        assert not of(cache_info(num_gpu_blocks=1)).pool.known

    def test_the_sum_is_shared_by_distinct_engines_only(self) -> None:
        twice = cache_info(block_size=128, num_gpu_blocks=8192) * 2  # one engine, scraped twice
        assert uniform(of(twice)) == 8191 * 128
        found = facts(payloads.vllm_dp2(sized=False))
        assert [rank.rank for rank in found.ranks] == ["0", "1"]
        assert found.setting("dp_size").value == 2
        assert any("2 data-parallel engines" in note for note in found.notes)

    def test_unequal_lines_of_one_engine_are_two_processes(self) -> None:
        lines = cache_info(kv_cache_size_tokens=4096) + cache_info(kv_cache_size_tokens=8192)
        assert not of(lines).pool.known

    def test_one_engine_without_a_number_leaves_the_pool_unknown(self) -> None:
        lines = cache_info("0", kv_cache_size_tokens=4096) + cache_info("1", kv_cache_size_tokens="None")
        assert not of(lines).pool.known

    def test_no_metric_is_unknown_and_says_what_came_instead(self) -> None:
        payload = payloads.vllm_recorded()
        payload["/metrics"] = (404, b"", "")
        assert "404" in facts(payload).pool.source


class TestHybrid:
    def test_the_size_label_is_right_where_the_product_is_not(self) -> None:
        found = facts(payloads.vllm_hybrid())
        assert found.pool.value == 12_772
        assert found.conditions["hybrid_kv"] is True

    @pytest.mark.parametrize("context", [4096, 60_000])
    def test_blocks_times_block_size_is_neither_an_upper_nor_a_lower_bound(self, context: int) -> None:
        found = facts(payloads.vllm_hybrid(sized=False, context=context))
        assert not found.pool.known
        assert "51072" in found.pool.source
        assert found.conditions["hybrid_kv"] is True
        assert uniform(found) is None  # the process says itself that it is hybrid

    def test_the_block_size_of_a_hybrid_model_may_be_stale(self) -> None:
        """vllm#42966: the label says 16, the blocks are of 528; no label tells that the model is hybrid."""
        line = cache_info(num_gpu_blocks=4200, mamba_block_size=None, mamba_cache_mode="none")
        found = of(line, version="0.21.0", context=262_144)
        assert not found.pool.known
        assert "hybrid_kv" in found.pool.source  # what would decide it
        assert uniform(found) == 67_184  # for whoever declares that no layer differs

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ({"num_gpu_blocks": 1000, "kv_cache_size_tokens": 16_000}, False),
            ({"num_gpu_blocks": 400, "block_size": 128, "kv_cache_size_tokens": 12_900}, True),
            # vllm#49878: unequal block sizes, the label is the smallest of them
            ({"num_gpu_blocks": 20_000, "kv_cache_size_tokens": 473_313}, None),
            ({"num_gpu_blocks": 1000, "kv_cache_size_tokens": 32_000}, None),  # or context parallelism
            ({"num_gpu_blocks": 2000, "kv_cache_size_tokens": 16_000}, None),  # or the sum over two engines
            # vllm#51163: the smaller size of two is told
            ({"block_size": 4, "effective_attention_block_size": 256, "kv_cache_size_tokens": 9_999}, True),
            ({"num_gpu_blocks": 1000, "kv_cache_size_tokens": 16_000, "sliding_window": 512}, None),
            ({"num_gpu_blocks": 1000, "kv_cache_size_tokens": 16_000, "mamba_block_size": 528}, True),
            ({"num_gpu_blocks": 1000, "kv_cache_size_tokens": 15_999}, False),  # the last block is not full
            ({"num_gpu_blocks": 1000, "kv_cache_size_tokens": 0}, None),
        ],
    )
    def test_what_the_figures_can_tell(self, labels: dict[str, object], expected: bool | None) -> None:
        assert of(cache_info(**labels), context=2040).conditions.get("hybrid_kv") is expected

    def test_no_label_proves_nothing_in_old_releases(self) -> None:
        assert "hybrid_kv" not in facts(payloads.vllm_0_19()).conditions


class TestContext:
    def test_the_card_of_the_model_not_of_an_adapter(self) -> None:
        data = [
            {"id": "lora", "owned_by": "vllm", "parent": "base", "max_model_len": 99},
            {"id": "base", "owned_by": "vllm", "parent": None, "max_model_len": 2048},
        ]
        payload = payloads.vllm_recorded()
        payload["/v1/models"] = (200, json.dumps({"data": data}).encode(), "application/json")
        found = facts(payload)
        assert found.context.value == 2048
        assert found.model.value == "base"
        assert found.conditions["lora"] is True

    @pytest.mark.parametrize(
        ("labels", "development", "context"),
        [
            ({"kv_cache_max_concurrency": 8.0}, "", 2048),
            ({"kv_cache_max_concurrency": "7.99"}, "", 2048),  # rounded
            ({"kv_cache_max_concurrency": "2.0"}, "", 8192),  # the card was curated on the way
            ({"kv_cache_max_concurrency": "16.0"}, "", 2048),
            ({"kv_cache_max_concurrency": "0.0"}, "", 2048),
            ({"kv_cache_max_concurrency": "nan"}, "", 2048),
            ({}, "model='m', max_seq_len=8192, dtype=bfloat16", 8192),
            ({}, "model='m', max_seq_len=2048, dtype=bfloat16", 2048),
        ],
    )
    def test_the_largest_source_counts(
        self, labels: dict[str, object], development: str, context: int
    ) -> None:
        line = cache_info(num_gpu_blocks=1024, kv_cache_size_tokens=16_384, **labels)
        payload = vllm_server("0.32.0", 2048, line)
        if development:
            body = json.dumps({"vllm_config": development}).encode()
            payload["/server_info"] = (200, body, "application/json")
        found = facts(payload)
        assert found.context.value == context
        assert bool(found.contradictions) == (context != 2048)

    @pytest.mark.parametrize("value", [None, 0, -1, True, "long", 1e30])
    def test_nonsense_is_unknown(self, value: object) -> None:
        data = [{"id": "base", "owned_by": "vllm", "parent": None, "max_model_len": value}]
        payload = payloads.vllm_recorded()
        payload["/v1/models"] = (200, json.dumps({"data": data}).encode(), "application/json")
        assert not facts(payload).context.known


class TestDisaggregation:
    def test_nixl_metrics_mean_a_member_of_a_pair(self) -> None:
        found = facts(payloads.vllm_nixl())
        assert found.conditions["nixl"] is True
        assert found.conditions["pd_disaggregation"] is True
        assert found.components == {"nixl": ""}
        assert not found.role.known

    def test_expired_transfers_are_said(self) -> None:
        found = facts(payloads.vllm_nixl(expired=3, late=2))
        assert any("3 transfers expired" in note for note in found.notes)
        assert any("2 blocks were read after" in note for note in found.notes)
        assert found.counters["vllm:nixl_num_kv_expired_reqs_total"] == 3.0
        assert facts(payloads.vllm_nixl()).notes == ()

    def test_counters_do_not_move_the_fingerprint(self) -> None:
        assert fingerprint(facts(payloads.vllm_nixl(expired=3))) == fingerprint(facts(payloads.vllm_nixl()))

    @pytest.mark.parametrize(
        ("metrics", "workers"),
        [
            (payloads.PRODUCTION_STACK, ["http://10.0.0.4:8000", "http://10.0.0.5:8000"]),
            ("router_cpu_usage_percent 3.1\n", []),  # nobody has asked anything yet
            ('vllm:current_qps{server="http://10.0.0.4:8000"} 0.5\n', ["http://10.0.0.4:8000"]),
            ('vllm:num_requests_running{server="https://w:8000"} 0.0\n', ["https://w:8000"]),
        ],
    )
    def test_the_router_of_the_production_stack_is_no_node(self, metrics: str, workers: list[str]) -> None:
        """Its version is its own: 0.1.9 would lie in the range of old advisories (case 10)."""
        payload = payloads.vllm_production_stack(metrics)
        found = facts(payload)
        assert VLLM.recognises(answers(payload))
        assert (found.kind, [worker.url for worker in found.workers]) == ("router", workers)
        assert not found.version.known

    @pytest.mark.parametrize("admin", [True, False])
    def test_a_gateway_that_was_declared_as_vllm_is_no_node(self, admin: bool) -> None:
        found = facts(payloads.vllm_router(admin=admin))
        assert (found.kind, len(found.workers)) == ("router", 2 if admin else 0)
        assert not found.context.known

    def test_a_frontend_of_dynamo_is_a_router(self) -> None:
        found = facts(payloads.dynamo_frontend())
        assert VLLM.recognises(answers(payloads.dynamo_frontend()))
        assert found.kind == "router"
        assert not found.pool.known
        assert found.model.value == "m"

    @pytest.mark.parametrize(("kind", "more"), [("object", {}), ("model", {"context_window": 40_960})])
    def test_its_model_card_is_enough(self, kind: str, more: dict[str, int]) -> None:
        card = {"id": "m", "object": kind, "owned_by": "nvidia", **more}
        payload = payloads.served({"/v1/models": {"data": [card]}})
        assert VLLM.recognises(answers(payload))
        assert facts(payload).kind == "router"


class TestExposures:
    def test_development_mode(self) -> None:
        payload = payloads.vllm_development()
        found = facts(payload).exposures
        assert [(each.where, each.severity) for each in found] == [("GET /server_info", "fail")]
        assert VLLM.recognises(answers(payload))


class TestProcess:
    def test_created_gauges_stand_in(self) -> None:
        line = 'vllm:prompt_tokens_created{engine="0"} 1.7959847688e+09\n' + cache_info(num_gpu_blocks=100)
        payload = vllm_server("0.32.0", 2048, line)
        status, body, kind = payload["/metrics"]
        payload["/metrics"] = (status, body.replace(b"process_start_time_seconds", b"other"), kind)
        assert facts(payload).process.value == "1795984768.80"

    def test_unknown_without_either(self) -> None:
        payload = payloads.vllm_recorded()
        payload["/metrics"] = (200, cache_info(num_gpu_blocks=100).encode(), "text/plain")
        assert not facts(payload).process.known


def test_other_engines_are_not_recognised() -> None:
    builds: list[Callable[[], Any]] = [
        payloads.sglang_prefill_0_5_19,
        payloads.sglang_0_4_6_post5,
        payloads.sglang_router,
        payloads.trtllm_1_3,
        payloads.trtllm_drained,
        payloads.trtllm_disaggregated,
    ]
    for build in builds:
        assert not VLLM.recognises(answers(build())), build
