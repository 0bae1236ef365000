"""The SGLang adapter against the shapes of each release that it claims to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvaudit.auditor.engines import get
from kvaudit.auditor.engines.answers import Answer
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.readings import EngineFacts, State, fingerprint
from tests.auditor.engines import payloads
from tests.auditor.engines.payloads import Served, answers, card, loads, models, sglang_file, sglang_server

SGLANG = get("sglang")


def facts(payload: Served) -> EngineFacts:
    return SGLANG.facts(answers(payload))


def single(*, remove: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    info = sglang_file("server_info-single-0.5.22") | changes
    return {name: value for name, value in info.items() if name not in remove}


def test_is_an_engine() -> None:
    assert isinstance(SGLANG, Adapter)
    assert all(step.unless in {"", *(other.path for other in SGLANG.plan)} for step in SGLANG.plan)
    assert not any(step.destructive for step in SGLANG.plan)


@pytest.mark.parametrize(
    ("build", "version", "context", "pool", "limit", "role"),
    [
        (payloads.sglang_0_4_6_post5, "0.4.6.post5", 40_960, 412_672, 40_954, "unified"),
        (payloads.sglang_0_5_3, "0.5.3", 202_752, 284_928, 202_746, "prefill"),
        (payloads.sglang_0_5_9, "0.5.9", 202_752, 284_928, 202_746, "prefill"),
        (payloads.sglang_0_5_11, "0.5.11", 202_752, 284_928, 202_746, "prefill"),
        (payloads.sglang_prefill_0_5_19, "0.5.19", 1_048_576, 681_280, 681_274, "prefill"),
        (payloads.sglang_decode_0_5_19, "0.5.19", 1_048_576, 1_412_544, 1_048_570, "decode"),
        (payloads.sglang_prefill_0_5_22, "0.5.22", 1_048_576, 2_040_000, 1_048_570, "prefill"),
        (payloads.sglang_decode_0_5_22, "0.5.22", 1_048_576, 2_040_000, 1_048_570, "decode"),
        (payloads.sglang_single_0_5_22, "0.5.22", 40_960, 412_672, 40_954, "unified"),
        (payloads.sglang_dp2_0_5_22, "0.5.22", 163_840, 300_032, 163_834, "unified"),
        (payloads.sglang_hybrid_0_5_22, "0.5.22", 131_072, 150_000, 131_066, "unified"),
        (payloads.sglang_rust_0_5_22, "0.5.22", 40_960, 412_672, None, None),
        (payloads.sglang_hidden_pool, "0.5.22", 40_960, None, None, "unified"),
        (payloads.sglang_zero_pool, "0.5.22", 40_960, None, None, "unified"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_reads_each_release(
    build: Callable[[], Served],
    version: str,
    context: int,
    pool: int | None,
    limit: int | None,
    role: str | None,
) -> None:
    payload = build()
    found = facts(payload)
    assert SGLANG.recognises(answers(payload))
    assert found.kind == "node"
    assert found.version.value == version
    assert found.context.value == context
    assert found.pool.value == pool
    assert found.input_limit.value == limit
    assert found.role.value == role


class TestRanks:
    def test_the_smallest_rank_counts_not_the_sum_and_not_the_first(self) -> None:
        found = facts(payloads.sglang_dp2_0_5_22(pools=(300_032, 200_000)))
        assert found.pool.value == 200_000
        assert [(rank.rank, rank.pool.value) for rank in found.ranks] == [("0", 300_032), ("1", 200_000)]

    @pytest.mark.parametrize("attention", [False, True])
    def test_a_rank_missing_from_every_source_leaves_the_pool_unknown(self, attention: bool) -> None:
        info = sglang_file("server_info-dp2-0.5.22")
        if attention:  # since 0.5.22 the width is in attn_dp_size, and dp_size is 1
            info |= {"dp_size": 1, "attn_dp_size": 2}
        info["internal_states"] = info["internal_states"][:1]
        found = facts(sglang_server(info, 163_840, more={"/v1/loads": loads("0.5.22", 300_032)}))
        assert not found.pool.known
        assert "1 of 2" in found.pool.source
        assert any("1 of 2" in note for note in found.notes)

    def test_two_widths_multiply(self) -> None:
        info = sglang_file("server_info-dp2-0.5.22") | {"dp_size": 2, "attn_dp_size": 2}
        found = facts(sglang_server(info, 163_840))
        assert not found.pool.known
        assert "2 of 4" in found.pool.source

    def test_a_snapshot_of_zero_is_not_published_yet_and_states_stand_in(self) -> None:
        info = sglang_file("server_info-dp2-0.5.22")
        found = facts(sglang_server(info, 163_840, more={"/v1/loads": loads("0.5.22", 0, 300_032)}))
        assert found.pool.value == 300_032
        assert "token_capacity" in found.pool.source

    def test_states_carry_no_rank_and_are_not_given_one(self) -> None:
        found = facts(sglang_server(sglang_file("server_info-dp2-0.5.22"), 163_840))
        assert found.pool.value == 300_032
        assert all(not rank.rank.isdigit() for rank in found.ranks)

    def test_top_level_is_one_rank_of_several_and_proves_nothing_for_the_others(self) -> None:
        info = sglang_file("server_info-dp2-0.5.22")
        for state in info["internal_states"]:
            del state["memory_usage"]
        found = facts(sglang_server(info, 163_840))
        assert not found.pool.known
        assert 300_032 in [rank.pool.value for rank in found.ranks]
        assert any("only 1 of 2" in note for note in found.notes)

    def test_top_level_stands_for_a_single_rank(self) -> None:
        found = facts(sglang_server(single(internal_states=[{}]), 40_960))
        assert found.pool.value == 412_672
        assert found.pool.source.endswith("max_total_num_tokens")

    def test_a_smaller_source_wins_and_is_said(self) -> None:
        found = facts(sglang_server(single(), 40_960, more={"/v1/loads": loads("0.5.22", 500_000)}))
        assert found.pool.value == 412_672
        assert any("500,000" in note and "412,672" in note for note in found.notes)
        assert any("500,000" in clause for clause in found.contradictions)

    @pytest.mark.parametrize(("other", "contradicts"), [(412_672, 0), (412_000, 0), (300_000, 1)])
    def test_sources_that_differ_by_more_than_a_draw_contradict_each_other(
        self, other: int, contradicts: int
    ) -> None:
        gauge = f'sglang:max_total_num_tokens{{dp_rank="0"}} {other}.0\n'
        assert len(facts(sglang_server(single(), 40_960, metrics=gauge)).contradictions) == contradicts

    def test_a_smaller_top_level_counts_as_a_rank(self) -> None:
        info = single(max_total_num_tokens=1000)
        info["internal_states"][0]["memory_usage"]["token_capacity"] = 412_672
        found = facts(sglang_server(info, 40_960, more={"/v1/loads": loads("0.5.22", 412_672)}))
        assert found.pool.value == 1000

    def test_a_smaller_top_level_counts_beside_several_ranks(self) -> None:
        payload = sglang_server(
            sglang_file("server_info-dp2-0.5.22") | {"max_total_num_tokens": 1000},
            163_840,
            more={"/v1/loads": loads("0.5.22", 300_032, 300_032)},
        )
        found = facts(payload)
        assert found.pool.value == 1000
        assert any("it counts too" in note for note in found.notes)

    def test_tensor_parallel_gauges_of_one_rank_are_one_rank(self) -> None:
        gauge = "".join(
            f'sglang:max_total_num_tokens{{dp_rank="{dp}",tp_rank="{tp}"}} {300_000 + dp}.0\n'
            for dp in (0, 1)
            for tp in (0, 1)
        )
        info = sglang_file("server_info-dp2-0.5.22") | {"internal_states": []}
        found = facts(sglang_server(info, 163_840, metrics=gauge))
        assert [rank.rank for rank in found.ranks] == ["0", "1"]
        # The top level says 300,032; the gauges' smallest is less and counts.
        assert found.pool.value == 300_000

    def test_a_rank_reported_twice_is_one_rank_with_its_smaller_pool(self) -> None:
        body = loads("0.5.22", 412_672, 400_000)
        body["loads"][1]["dp_rank"] = 0
        found = facts(sglang_server(single(), 40_960, more={"/v1/loads": body}))
        assert len(found.ranks) == 1
        assert found.pool.value == 400_000

    def test_thousands_of_entries_are_no_ranks(self) -> None:
        body = loads("0.5.22") | {"loads": [{"dp_rank": 0, "max_total_num_tokens": 7}] * 5000}
        found = facts(sglang_server(single(), 40_960, more={"/v1/loads": body}))
        assert found.pool.value == 412_672


def test_context_parallel_shards_make_the_pool_uncertain() -> None:
    assert any("2 shards" in note for note in facts(sglang_server(single(dcp_size=2), 40_960)).notes)
    assert not any("shards" in note for note in facts(sglang_server(single(), 40_960)).notes)


class TestSlidingWindow:
    def test_null_means_that_there_is_no_window(self) -> None:
        found = facts(payloads.sglang_single_0_5_22())
        assert [rank.sliding_window for rank in found.ranks] == [None]
        assert "hybrid_kv" not in found.conditions  # Mamba states show in no answer but the metrics

    def test_mamba_states_show_in_the_metrics(self) -> None:
        found = facts(sglang_server(single(), 40_960, metrics="sglang:mamba_usage 0.0\n"))
        assert found.conditions["hybrid_kv"] is True

    def test_a_window_of_zero_is_unknown_and_takes_the_pool_with_it(self) -> None:
        assert not facts(payloads.sglang_hybrid_0_5_22(window=0)).pool.known

    def test_the_smallest_window_stands_for_every_rank(self) -> None:
        info = sglang_file("server_info-dp2-0.5.22")
        for state, window in zip(info["internal_states"], (90_000, 70_000), strict=True):
            state["memory_usage"]["token_capacity_swa"] = window
        found = facts(sglang_server(info, 163_840, more={"/v1/loads": loads("0.5.22", 300_032, 300_032)}))
        assert found.pool.value == 70_000
        assert found.conditions["hybrid_kv"] is True

    def test_a_state_without_its_window_leaves_it_unknown(self) -> None:
        info = sglang_file("server_info-dp2-0.5.22")
        info["internal_states"][0]["memory_usage"]["token_capacity_swa"] = 90_000
        assert not facts(sglang_server(info, 163_840)).pool.known

    def test_the_gauge_stands_in(self) -> None:
        info = single(internal_states=[])
        found = facts(sglang_server(info, 40_960, metrics="sglang:max_total_num_tokens_swa 33000.0\n"))
        assert found.pool.value == 33_000

    def test_a_gauge_of_zero_is_no_window(self) -> None:
        info = single(internal_states=[])
        found = facts(sglang_server(info, 40_960, metrics="sglang:max_total_num_tokens_swa 0.0\n"))
        assert found.pool.value == 412_672


class TestContext:
    def test_adapters_cards_do_not_count(self) -> None:
        listed = models(
            card("lora", None, parent="qwen3-32b"),
            card("other", 99_999, parent="x"),
            card("qwen3-32b", 40_960),
        )
        found = facts(sglang_server(single(), None, more={"/v1/models": listed}))
        assert found.context.value == 40_960
        assert found.conditions["lora"] is True

    @pytest.mark.parametrize(
        ("card_says", "gauge", "argument", "expected", "contradicts"),
        [
            (40_960, None, 8192, 40_960, True),
            (2048, None, 8192, 8192, True),  # a card that was curated on the way
            (2048, 40_960, None, 40_960, True),
            (None, 32_768, 8192, 32_768, True),
            (None, None, 8192, 8192, False),
            (8192, 8192, 8192, 8192, False),
            (8192, None, 0, 8192, False),
        ],
    )
    def test_the_largest_source_counts_and_a_difference_is_said(
        self, card_says: int | None, gauge: int | None, argument: int | None, expected: int, contradicts: bool
    ) -> None:
        metrics = f'sglang:context_len{{tp_rank="0"}} {gauge}.0\n' if gauge else ""
        found = facts(sglang_server(single(context_length=argument), card_says, metrics=metrics))
        assert found.context.value == expected
        assert bool(found.contradictions) == contradicts

    def test_the_arguments_of_a_rank_tell_it_too(self) -> None:
        info = single()
        info["internal_states"][0]["context_length"] = 65_536
        found = facts(sglang_server(info, 40_960))
        assert found.context.value == 65_536
        assert any("internal_states" in clause for clause in found.contradictions)

    def test_null_everywhere_is_unknown_and_says_where_was_looked(self) -> None:
        context = facts(sglang_server(single(), None)).context
        assert not context.known
        assert "/v1/models" in context.source
        assert "context_length" in context.source

    def test_rust_front_end_has_its_own_name(self) -> None:
        payload = payloads.sglang_rust_0_5_22()
        payload["/v1/models"] = payloads.NOT_FOUND
        assert facts(payload).context.value == 40_960


class TestRole:
    def test_the_live_role_wins_over_the_start(self) -> None:
        info = sglang_file("server_info-prefill-0.5.19")
        info["internal_states"][0]["disaggregation_mode"] = "decode"
        found = facts(sglang_server(info, 1_048_576))
        assert found.role.value == "decode"
        assert any("switched" in note for note in found.notes)

    def test_ranks_that_disagree_have_no_role(self) -> None:
        info = sglang_file("server_info-dp2-0.5.22")
        info["internal_states"][0]["disaggregation_mode"] = "prefill"
        role = facts(sglang_server(info, 163_840)).role
        assert not role.known
        assert "prefill" in role.source

    @pytest.mark.parametrize(
        ("mode", "role"), [("null", "unified"), ("prefill", "prefill"), ("decode", "decode")]
    )
    def test_start_up_role_where_states_tell_none(self, mode: str, role: str) -> None:
        assert facts(payloads.sglang_0_5_3(mode=mode)).role.value == role

    @pytest.mark.parametrize(
        ("version", "role"),
        [("0.4.3.post2", "unified"), ("0.4.6.post5", None), ("0.0.0.dev1", None), ("main", None)],
    )
    def test_releases_without_roles_are_unified(self, version: str, role: str | None) -> None:
        """Case 18: a sentence about prefill and decode would speak of what that release has not."""
        info = single(remove=("disaggregation_mode",), version=version)
        info["internal_states"][0].pop("disaggregation_mode", None)
        assert facts(sglang_server(info, 40_960)).role.value == role

    def test_loads_tell_the_role_of_the_rust_front_end(self) -> None:
        payload = payloads.sglang_rust_0_5_22()
        payload["/v1/loads"] = (200, json.dumps(loads("0.5.22", 412_672, mode="prefill")).encode(), "")
        assert facts(payload).role.value == "prefill"

    def test_model_information_tells_it_next(self) -> None:
        payload = payloads.sglang_rust_0_5_22()
        payload["/model_info"] = (200, b'{"disaggregation_mode":"decode"}', "application/json")
        assert facts(payload).role.value == "decode"

    def test_metrics_tell_it_last(self) -> None:
        payload = payloads.sglang_rust_0_5_22()
        payload["/metrics"] = (200, b'sglang:prompt_tokens_total{engine_type="decode"} 1.0\n', "text/plain")
        assert facts(payload).role.value == "decode"

    @pytest.mark.parametrize("value", [None, 7, "Prefill ", ["prefill"]])
    def test_anything_else_is_unknown(self, value: object) -> None:
        info = single(disaggregation_mode=value)
        info["internal_states"][0].pop("disaggregation_mode")
        assert not facts(sglang_server(info, 40_960)).role.known


class TestVersionAndProcess:
    def test_loads_stand_in_for_a_hidden_server_information(self) -> None:
        payload = sglang_server(single(), 40_960, more={"/v1/loads": loads("0.5.22", 412_672)})
        payload["/server_info"] = payload["/get_server_info"] = payloads.UNAUTHORIZED
        found = facts(payload)
        assert SGLANG.recognises(answers(payload))  # by its model card
        assert found.version.value == "0.5.22"
        assert found.pool.value == 412_672
        assert any("401" in note for note in found.notes)

    def test_two_versions_are_two_processes_behind_one_address(self) -> None:
        version = facts(sglang_server(single(), 40_960, more={"/v1/loads": loads("0.5.19", 412_672)})).version
        assert not version.known
        assert "0.5.19" in version.source
        assert "0.5.22" in version.source

    def test_process_survives_traffic_and_not_a_restart(self) -> None:
        before = facts(sglang_server(single(), 40_960)).process
        busy, restarted = single(), single()
        busy["internal_states"][0]["last_gen_throughput"] = 1.5
        restarted["startup_time"]["load_weight"] = 23.0
        assert before.known
        assert before.state is State.DERIVED
        assert facts(sglang_server(busy, 40_960)).process == before
        assert facts(sglang_server(restarted, 40_960)).process.value != before.value

    def test_process_does_not_depend_on_the_order_of_ranks(self) -> None:
        one = sglang_file("server_info-dp2-0.5.22")
        del one["startup_time"]
        one["internal_states"][0]["startup_time"] = {"load_weight": 1.0}
        one["internal_states"][1]["startup_time"] = {"load_weight": 2.0}
        two = one | {"internal_states": one["internal_states"][::-1]}
        first, second = (facts(sglang_server(info, 163_840)).process for info in (one, two))
        assert first.known
        assert first == second


class TestConfiguration:
    def test_fingerprint_ignores_traffic_and_sees_settings(self) -> None:
        before = fingerprint(facts(sglang_server(single(), 40_960)))
        busy = single()
        busy["internal_states"][0]["last_gen_throughput"] = 0.0
        assert fingerprint(facts(sglang_server(busy, 40_960))) == before
        for name in ("quantization", "kv_cache_dtype", "page_size", "tp_size", "cuda_graph_max_bs_decode"):
            changed = fingerprint(facts(sglang_server(single(**{name: 99}), 40_960)))
            assert changed.digest != before.digest, name

    def test_null_settings_are_unknown_and_absent_ones_are_not_listed(self) -> None:
        found = facts(sglang_server(single(remove=("dtype",)), 40_960)).settings
        assert not found["speculative_algorithm"].known
        assert "dtype" not in found
        assert found["cuda_graph_bs_decode"].value == "1,2,4,8,16,32,64,128,256"

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            (
                {},
                {"hicache": False, "radix_cache": True, "chunked_prefill": True, "speculative_ngram": False},
            ),
            ({"enable_hierarchical_cache": True}, {"hicache": True}),
            ({"disable_radix_cache": True}, {"radix_cache": False}),
            ({"chunked_prefill_size": -1}, {"chunked_prefill": False}),
            ({"speculative_algorithm": "NGRAM"}, {"speculative_ngram": True}),
            ({"speculative_algorithm": "EAGLE"}, {"speculative_ngram": False, "speculative": True}),
            ({"allow_auto_truncate": True}, {"allow_auto_truncate": True}),
            ({"disaggregation_enable_kv_checksum": True}, {"kv_checksum": True}),
            ({"enable_lmcache": True}, {"lmcache": True}),
            ({}, {"mooncake": False, "pd_disaggregation": False}),  # the default backend of a unified node
            ({"hicache_storage_backend": "mooncake"}, {"mooncake": True, "hicache_storage": False}),
            (
                {"enable_hierarchical_cache": True, "hicache_storage_backend": None},
                {"hicache_storage": False},
            ),
            (
                {"enable_hierarchical_cache": True, "hicache_storage_backend": "file"},
                {"hicache_storage": True},
            ),
            ({"device": "npu"}, {"ascend_npu": True}),
            ({"device": "cuda"}, {"ascend_npu": False}),
        ],
    )
    def test_conditions(self, changes: dict[str, Any], expected: dict[str, bool]) -> None:
        found = facts(sglang_server(single(**changes), 40_960)).conditions
        assert {name: found.get(name) for name in expected} == expected

    def test_conditions_of_a_pair(self) -> None:
        found = facts(payloads.sglang_prefill_0_5_19())
        assert found.conditions["pd_disaggregation"] is True
        assert found.conditions["mooncake"] is True
        assert found.conditions["ascend_npu"] is False  # /v1/loads names an NVIDIA accelerator
        assert found.components == {"mooncake": ""}

    def test_what_is_not_told_is_absent(self) -> None:
        found = facts(payloads.sglang_rust_0_5_22()).conditions
        assert "pd_disaggregation" not in found
        assert "hicache" not in found
        assert "lmcache" not in found

    @pytest.mark.parametrize(
        ("image", "audio", "told"), [(False, False, False), (False, True, True), (None, True, None)]
    )
    def test_model_information_tells_the_senses(
        self, image: object, audio: object, told: bool | None
    ) -> None:
        body = {"has_image_understanding": image, "has_audio_understanding": audio}
        found = facts(sglang_server(single(), 40_960, more={"/model_info": body}))
        assert found.conditions.get("multimodal") is told

    def test_a_wrong_type_is_no_answer(self) -> None:
        found = facts(sglang_server(single(allow_auto_truncate="false", chunked_prefill_size=True), 40_960))
        assert "allow_auto_truncate" not in found.conditions
        assert "chunked_prefill" not in found.conditions

    def test_features_date_a_build(self) -> None:
        old, new = facts(payloads.sglang_0_5_9()).features, facts(payloads.sglang_prefill_0_5_22()).features
        assert old["cuda_graph_max_bs"] is True
        assert new["cuda_graph_max_bs"] is False
        for name in ("launch_command", "frontend", "disaggregation_enable_kv_checksum", "attn_dp_size"):
            assert old[name] is False
            assert new[name] is True
        assert new["hicache_object_layout"] is False

    def test_a_short_list_is_no_sign_of_age(self) -> None:
        assert facts(payloads.sglang_rust_0_5_22()).features == {}


class TestExposures:
    @pytest.mark.parametrize(
        ("names", "severity"),
        [
            (("api_key", "launch_command"), "warn"),  # a key was needed to get here
            (("admin_api_key",), "fail"),  # without an API key ordinary endpoints are open
            (("internal_states[0].ssl_keyfile_password",), "fail"),
            (("launch_command",), "warn"),
        ],
    )
    def test_secrets_in_clear(self, names: tuple[str, ...], severity: str) -> None:
        found = SGLANG.facts(answers(payloads.sglang_single_0_5_22(), exposed={"/server_info": names}))
        assert [(exposure.where, exposure.severity) for exposure in found.exposures] == [
            ("GET /server_info", severity)
        ]
        assert names[0].rpartition(".")[2] in found.exposures[0].what

    def test_none_without_secrets(self) -> None:
        assert facts(payloads.sglang_single_0_5_22()).exposures == ()


class TestRouters:
    def test_a_router_is_never_taken_for_the_node_that_it_proxies(self) -> None:
        payload = payloads.sglang_router()
        found = facts(payload)
        assert SGLANG.recognises(answers(payload))
        assert found.kind == "router"
        for reading in (
            found.version,
            found.context,
            found.pool,
            found.input_limit,
            found.role,
            found.process,
        ):
            assert not reading.known
        assert found.ranks == ()
        assert any("proxied" in note for note in found.notes)

    def test_lists_its_workers_without_rank_suffix(self) -> None:
        workers = facts(payloads.sglang_router()).workers
        assert [(worker.url, worker.role, worker.model) for worker in workers] == [
            ("http://10.0.0.11:30000", "prefill", "glm-5.3"),
            ("http://10.0.0.21:30000", "decode", "glm-5.3"),
        ]

    def test_ranks_of_one_address_are_one_worker(self) -> None:
        body = {
            "workers": [
                {"url": f"http://10.0.0.21:30000@{rank}", "worker_type": "regular"} for rank in (0, 1)
            ]
        }
        payload = payloads.sglang_router()
        payload["/workers"] = (200, json.dumps(body).encode(), "application/json")
        workers = facts(payload).workers
        assert [(worker.url, worker.role) for worker in workers] == [("http://10.0.0.21:30000", "unified")]

    def test_without_the_admin_key_it_says_so(self) -> None:
        found = facts(payloads.sglang_router(admin=False))
        assert found.kind == "router"
        assert found.workers == ()
        assert any("admin key" in note for note in found.notes)

    def test_a_router_without_healthy_workers(self) -> None:
        payload = payloads.sglang_router(admin=False)
        payload["/readiness"] = (503, b'{"status":"not ready"}', "application/json")
        assert facts(payload).kind == "router"

    def test_the_experimental_router(self) -> None:
        found = facts(payloads.sglang_rust_router())
        assert found.kind == "router"
        assert any("experimental" in note for note in found.notes)

    def test_a_proxy_that_refuses_unknown_paths_leaves_a_node_a_node(self) -> None:
        payload = payloads.sglang_single_0_5_22()
        for path in ("/workers", "/readiness", "/readyz", "/metrics"):
            payload[path] = (403, b"", "")
        found = facts(payload)
        assert found.kind == "node"
        assert found.pool.value == 412_672

    def test_a_page_on_every_path_is_no_router(self) -> None:
        page = (200, b"<!doctype html><p>hello", "text/html")
        seen = answers(payloads.served({}, fallback=page))
        assert not SGLANG.recognises(seen)
        assert SGLANG.facts(seen).kind == "node"


def test_other_engines_are_not_recognised() -> None:
    for build in (
        payloads.vllm_recorded,
        payloads.trtllm_1_3,
        payloads.trtllm_drained,
        payloads.dynamo_frontend,
    ):
        assert not SGLANG.recognises(answers(build())), build.__name__


def test_nothing_asked_is_all_unknown() -> None:
    found = SGLANG.facts({})
    assert not SGLANG.recognises({})
    assert not found.pool.known
    assert not found.version.known


def test_the_reason_travels_with_the_unknown() -> None:
    refused = "connection refused by 10.0.0.7:30000"
    found = SGLANG.facts({"/server_info": Answer("/server_info", 0, problem=refused)})
    assert refused in found.version.source
    assert refused in found.pool.source
