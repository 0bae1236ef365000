"""Answers of engines by release, built from recorded bodies and released shapes (values invented).

Every builder returns ``{path: (status, body, content type)}`` and covers each path that any adapter
asks, with the 404 that the real server would give where it has no such endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kvaudit.auditor import engines
from kvaudit.auditor.engines.answers import Answer

Served = dict[str, tuple[int, bytes, str]]

FOLDER = Path(__file__).parents[2] / "payloads"
JSON, PROMETHEUS_TEXT = "application/json", "text/plain; version=1.0.0; charset=utf-8"
NOT_FOUND = (404, b'{"detail":"Not Found"}', JSON)
UNAUTHORIZED = (401, b'{"error":"Unauthorized"}', JSON)
PLANNED = sorted({step.path for name in engines.RECOGNISABLE for step in engines.get(name).plan})


def served(bodies: Mapping[str, Any], *, fallback: tuple[int, bytes, str] = NOT_FOUND) -> Served:
    """Bodies (JSON values, or text for metrics) as 200 answers, and 404 on every other path asked."""
    found: Served = dict.fromkeys(PLANNED, fallback)
    for path, body in bodies.items():
        if isinstance(body, tuple):
            found[path] = body
        elif isinstance(body, str):
            found[path] = (200, body.encode(), PROMETHEUS_TEXT)
        else:
            found[path] = (200, json.dumps(body).encode(), JSON)
    return found


def answers(payload: Served, *, exposed: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, Answer]:
    """A payload as an adapter sees it, all paths asked; ``exposed`` as the transport reports it."""
    return {
        path: Answer(path, status, body, content_type, exposed=(exposed or {}).get(path, ()))
        for path, (status, body, content_type) in payload.items()
    }


def sglang_file(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "sglang" / f"{name}.json").read_bytes())
    return found


def recorded(name: str) -> tuple[int, bytes, str]:
    """Status, body and content type of an answer recorded from a real vLLM 0.32.0."""
    _, _, answer = (FOLDER / "vllm-0.32.0" / f"{name}.http").read_bytes().partition(b"\n\n< HTTP ")
    head, _, body = answer.partition(b"\n\n")
    kinds = [line[16:] for line in head.split(b"\n") if line.lower().startswith(b"< content-type: ")]
    return int(head[:3]), body.removesuffix(b"\n"), kinds[0].decode() if kinds else ""


# --- SGLang ---------------------------------------------------------------------------------------


def card(name: str, length: int | None, parent: str | None = None) -> dict[str, Any]:
    found = {"id": name, "object": "model", "created": 1796032800, "owned_by": "sglang", "root": name}
    return {**found, "parent": parent, "max_model_len": length}


def models(*cards: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(cards)}


def loads(version: str, *pools: int, mode: str = "null", first_rank: int = 0) -> dict[str, Any]:
    """``/v1/loads`` of 0.5.19 and later."""
    return {
        "timestamp": "2026-11-29T10:00:00.123456+00:00",
        "version": version,
        "accelerator": "NVIDIA H200",
        "num_accelerators": 8,
        "loads": [
            {
                "timestamp": 1796032800.1,
                "dp_rank": rank,
                "num_running_reqs": 0,
                "num_used_tokens": 0,
                "max_total_num_tokens": pool,
                "max_running_requests": 64,
                "token_usage": 0.0,
                "disaggregation": {"mode": mode},
            }
            for rank, pool in enumerate(pools, start=first_rank)
        ],
    }


def sglang_server(
    info: dict[str, Any], context: int | None, *, more: Mapping[str, Any] | None = None, metrics: str = ""
) -> Served:
    """A worker of 0.5.6 or later: new and old endpoint, model card, loads unless ``more`` says else."""
    name = info.get("served_model_name", "model")
    bodies: dict[str, Any] = {
        "/server_info": info,
        "/get_server_info": info,
        "/v1/models": models(card(name, context)),
        "/model_info": {
            "model_path": info.get("model_path"),
            "is_generation": True,
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
        },
        **({"/metrics": metrics} if metrics else {}),
        **(more or {}),
    }
    return served(bodies)


def sglang_0_4_6_post5(pool: int = 412_672) -> Served:
    """The oldest release read: only /get_server_info, internal states without memory, metrics off."""
    info = {
        "model_path": "Qwen/Qwen3-32B",
        "served_model_name": "qwen3-32b",
        "context_length": None,
        "quantization": None,
        "kv_cache_dtype": "auto",
        "tp_size": 2,
        "dp_size": 1,
        "page_size": 1,
        "chunked_prefill_size": 8192,
        "cuda_graph_max_bs": 160,
        "cuda_graph_bs": None,
        "disable_radix_cache": False,
        "disaggregation_mode": "null",
        "api_key": None,
        "status": "ready",
        "max_total_num_tokens": pool,
        "max_req_input_len": min(40_960, pool) - 6,
        "internal_states": [{"page_size": 1, "last_gen_throughput": 12.5}],
        "version": "0.4.6.post5",
    }
    return served({"/get_server_info": info, "/v1/models": models(card("qwen3-32b", 40_960))})


def sglang_0_5_3(pool: int = 284_928, mode: str = "prefill") -> Served:
    """Only /get_server_info; internal states know the capacity; metrics without a pool gauge."""
    info = {
        "model_path": "zai-org/GLM-5",
        "served_model_name": "glm-5",
        "context_length": None,
        "quantization": "fp8",
        "kv_cache_dtype": "auto",
        "tp_size": 8,
        "dp_size": 1,
        "page_size": 64,
        "weight_version": "default",
        "cuda_graph_max_bs": 256,
        "disaggregation_mode": mode,
        "disaggregation_transfer_backend": "nixl",
        "allow_auto_truncate": False,
        "status": "ready",
        "max_total_num_tokens": pool,
        "max_req_input_len": min(202_752, pool) - 6,
        "internal_states": [
            {"memory_usage": {"weight": 90.1, "kvcache": 20.2, "token_capacity": pool, "graph": 1.5}}
        ],
        "version": "0.5.3",
    }
    return served({"/get_server_info": info, "/v1/models": models(card("glm-5", 202_752))})


def _old_loads(version: str, *pools: int) -> dict[str, Any]:
    """``/v1/loads`` of 0.5.9 and 0.5.11."""
    return {
        "timestamp": "2026-05-10T10:00:00+00:00",
        "version": version,
        "dp_rank_count": len(pools),
        "loads": [{"dp_rank": rank, "max_total_num_tokens": pool} for rank, pool in enumerate(pools)],
        "aggregate": {"total_running_reqs": 0},
    }


def sglang_0_5_9(pool: int = 284_928) -> Served:
    info = json.loads(sglang_0_5_3(pool)["/get_server_info"][1]) | {"version": "0.5.9"}
    return sglang_server(info, 202_752, more={"/v1/loads": _old_loads("0.5.9", pool)})


def sglang_0_5_11(pool: int = 284_928) -> Served:
    info = json.loads(sglang_0_5_3(pool)["/get_server_info"][1]) | {"version": "0.5.11"}
    gauges = (
        "# TYPE sglang:context_len gauge\n"
        'sglang:context_len{engine_type="prefill",model_name="glm-5",tp_rank="0"} 202752.0\n'
        f'sglang:max_total_num_tokens{{engine_type="prefill",model_name="glm-5",tp_rank="0"}} {pool}.0\n'
    )
    return sglang_server(info, 202_752, more={"/v1/loads": _old_loads("0.5.11", pool)}, metrics=gauges)


def _sized(info: dict[str, Any], pool: int, context: int) -> dict[str, Any]:
    """The same server with another pool, wherever it shows."""
    states = [
        {**state, "memory_usage": {**state["memory_usage"], "token_capacity": pool}}
        for state in info["internal_states"]
    ]
    sized = {"max_total_num_tokens": pool, "max_req_input_len": min(pool, context) - 6}
    return {**info, **sized, "internal_states": states}


def sglang_prefill_0_5_19() -> Served:
    """The small one of the incident: pool 681,280 under a context of 1,048,576."""
    info = sglang_file("server_info-prefill-0.5.19")
    return sglang_server(info, 1_048_576, more={"/v1/loads": loads("0.5.19", 681_280, mode="prefill")})


def sglang_decode_0_5_19() -> Served:
    info = sglang_file("server_info-decode-0.5.19")
    return sglang_server(info, 1_048_576, more={"/v1/loads": loads("0.5.19", 1_412_544, mode="decode")})


def _complete(info: dict[str, Any], **newer: Any) -> dict[str, Any]:
    """Arguments of 0.5.22 that the shortened shapes leave out: their presence dates a build."""
    arguments = {
        "launch_command": "python -m sglang.launch_server ...",
        "frontend": "python",
        "attn_dp_size": 1,
        "allow_auto_truncate": False,
        "chunked_prefill_size": 8192,
        "disable_radix_cache": False,
        "disaggregation_decode_allocation_policy": "default",
        "disaggregation_decode_host_receive_threshold": 0,
        "disaggregation_enable_kv_checksum": False,
        "disaggregation_transfer_backend": "mooncake",
        "enable_hierarchical_cache": False,
        "enable_lmcache": False,
        "enable_pd_role_switch": False,
        "hicache_storage_backend": None,
        "speculative_algorithm": None,
    }
    return {**arguments, **info, **newer}


def _enlarged(name: str, mode: str, pool: int) -> Served:
    info = _complete(_sized(sglang_file(name), pool, 1_048_576), version="0.5.22")
    return sglang_server(info, 1_048_576, more={"/v1/loads": loads("0.5.22", pool, mode=mode)})


def sglang_prefill_0_5_22(pool: int = 2_040_000) -> Served:
    """The incident's prefill node after the repair: fixed release and a pool beyond the context."""
    return _enlarged("server_info-prefill-0.5.19", "prefill", pool)


def sglang_decode_0_5_22(pool: int = 2_040_000) -> Served:
    return _enlarged("server_info-decode-0.5.19", "decode", pool)


def sglang_single_0_5_22() -> Served:
    """One unified node; ``context_length`` is null, so only the card tells 40,960."""
    info = _complete(sglang_file("server_info-single-0.5.22"))
    return sglang_server(info, 40_960, more={"/v1/loads": loads("0.5.22", 412_672)})


def sglang_dp2_0_5_22(*, attention: bool = False, pools: tuple[int, ...] = (300_032, 300_032)) -> Served:
    """Two data-parallel ranks; with ``attention`` the width shows as ``attn_dp_size``."""
    info = _complete(sglang_file("server_info-dp2-0.5.22"))
    if attention:
        info |= {"dp_size": 1, "attn_dp_size": 2, "enable_dp_attention": True}
    for state, pool in zip(info["internal_states"], pools, strict=False):
        state["memory_usage"]["token_capacity"] = pool
    body = sglang_file("v1_loads-dp2-0.5.22")
    for load, pool in zip(body["loads"], pools, strict=False):
        load["max_total_num_tokens"] = pool
    return sglang_server(info, 163_840, more={"/v1/loads": body})


def sglang_hybrid_0_5_22(pool: int = 900_000, window: int = 150_000) -> Served:
    """Hybrid sliding-window model: the window's pool is the smaller one."""
    info = _sized(_complete(sglang_file("server_info-single-0.5.22")), pool, 131_072)
    info["internal_states"][0]["memory_usage"]["token_capacity_swa"] = window
    return sglang_server(info, 131_072, more={"/v1/loads": loads("0.5.22", pool)})


def sglang_rust_0_5_22(pool: int = 412_672) -> Served:
    """The Rust front end: a short allow-list, no role, no limits, no arguments."""
    info = {
        "model_path": "Qwen/Qwen3-32B",
        "served_model_name": "qwen3-32b",
        "tokenizer_path": "Qwen/Qwen3-32B",
        "max_context_length": 40_960,
        "max_total_num_tokens": pool,
        "version": "0.5.22",
        "internal_states": [
            {
                "last_gen_throughput": 0.0,
                "memory_usage": {"weight": 16.4, "kvcache": 50.1, "token_capacity": pool},
                "effective_max_running_requests_per_dp": 256,
            }
        ],
    }
    return served({"/server_info": info, "/v1/models": models(card("qwen3-32b", 40_960))})


def sglang_hidden_pool() -> Served:
    """A build or proxy that shows everything but the pool."""
    info = _complete(sglang_file("server_info-single-0.5.22"))
    for name in ("max_total_num_tokens", "max_req_input_len"):
        del info[name]
    for state in info["internal_states"]:
        del state["memory_usage"]
    return sglang_server(info, 40_960)


def sglang_zero_pool() -> Served:
    """Numbers that were never set: 0 everywhere, as before the first snapshot."""
    info = _sized(_complete(sglang_file("server_info-single-0.5.22")), 0, 40_960) | {"max_req_input_len": 0}
    return sglang_server(info, 40_960, more={"/v1/loads": loads("0.5.22", 0)})


def sglang_router(*, admin: bool = True) -> Served:
    """sgl-model-gateway before a pair: it proxies the first prefill worker's server information."""
    info = sglang_file("server_info-prefill-0.5.19")
    workers = sglang_file("workers-gateway") if admin else UNAUTHORIZED
    ready = {"status": "ready", "healthy_workers": 2, "total_workers": 2}
    bodies = {"/server_info": info, "/get_server_info": info, "/workers": workers, "/readiness": ready}
    return served({**bodies, "/v1/models": models(card("glm-5.3", 1_048_576))})


def sglang_rust_router() -> Served:
    """experimental/sgl-router: no /workers, /readyz instead of /readiness."""
    return served({"/readyz": (200, b"ok", "text/plain"), "/v1/models": models(card("glm-5.3", None))})


# --- vLLM -----------------------------------------------------------------------------------------


def cache_info(engine: str | None = "0", **labels: object) -> str:
    """A line of ``vllm:cache_config_info``: Python reprs as labels."""
    usual: dict[str, object] = {
        "block_size": 16,
        "cache_dtype": "auto",
        "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.9,
        "num_cpu_blocks": None,
        "num_gpu_blocks_override": None,
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": None,
    }
    all_labels = usual | labels | ({"engine": engine} if engine is not None else {})
    shown = ",".join(f'{name}="{value}"' for name, value in sorted(all_labels.items()))
    return f"vllm:cache_config_info{{{shown}}} 1.0\n"


FIRST_WITH = {
    (0, 9): "vllm:kv_cache_usage_perc",
    (0, 10, 2): "vllm:inter_token_latency_seconds_bucket",
    (0, 11, 2): "vllm:external_prefix_cache_queries_total",
    (0, 12): "vllm:request_time_per_output_token_seconds_bucket",
    (0, 16): "vllm:prompt_tokens_by_source_total",
    (0, 32): "vllm:prompt_tokens_cached_by_source_total",
}


def usual_metrics(version: str, model: str) -> str:
    """The metrics of this release that date a build, and those of any process."""
    release = tuple(int(part) for part in version.split("."))
    names = ["vllm:num_requests_running", *(name for first, name in FIRST_WITH.items() if release >= first)]
    lines = "".join(f'{name}{{engine="0",model_name="{model}"}} 0.0\n' for name in names)
    return lines + "process_start_time_seconds 1.79598473952e+09\n"


def vllm_server(
    version: str, context: int, metrics: str, *, model: str = "tiny-llama", key: bool = True
) -> Served:
    """A vLLM: open /version and /metrics, /v1/models with a key, no /server_info."""
    listed = {"id": model, "object": "model", "created": 1795984793, "owned_by": "vllm"}
    data = [{**listed, "root": f"/models/{model}", "parent": None, "max_model_len": context}]
    return served(
        {
            "/version": {"version": version},
            "/v1/models": {"object": "list", "data": data} if key else UNAUTHORIZED,
            "/metrics": usual_metrics(version, model) + metrics,
        }
    )


def vllm_recorded(*, key: bool = True) -> Served:
    """A real 0.32.0: 8,192 blocks of 128, context 2,048."""
    return served(
        {
            "/version": recorded("get_version"),
            "/v1/models": recorded("get_v1_models" if key else "get_v1_models_wrongkey"),
            "/metrics": recorded("get_metrics"),
            "/server_info": recorded("get_server_info"),
        }
    )


def vllm_0_8_5() -> Served:
    """The engine process keeps its number of blocks to itself."""
    return vllm_server("0.8.5", 8192, cache_info(None, num_gpu_blocks=None))


def vllm_0_19(blocks: int = 2018) -> Served:
    """Before 0.24: only blocks and block size."""
    return vllm_server("0.19.1", 8192, cache_info(num_gpu_blocks=blocks))


def vllm_0_27_1_override_16() -> Served:
    """A real one that hung: 16 blocks of 128 for a context of 2,048, and block 0 is never used."""
    line = cache_info(
        block_size=128, num_gpu_blocks=16, num_gpu_blocks_override=16, kv_cache_size_tokens=2048
    )
    return vllm_server("0.27.1", 2048, line)


def vllm_over17() -> Served:
    """0.32.0 with 17 blocks of 128: the least that starts, usable exactly the context."""
    line = cache_info(
        block_size=128, num_gpu_blocks=17, num_gpu_blocks_override=17, kv_cache_size_tokens=2176
    )
    return vllm_server("0.32.0", 2048, line)


def vllm_dp2(*, sized: bool = True) -> Served:
    """Two engines of 8,192 blocks: the sum stands on both lines. ``sized``: 0.24 and later."""
    more = {"kv_cache_size_tokens": 1_048_576} if sized else {}
    lines = [cache_info(engine, block_size=128, num_gpu_blocks=16384, **more) for engine in ("0", "1")]
    return vllm_server("0.32.0" if sized else "0.19.1", 2048, "".join(lines))


def vllm_hybrid(*, sized: bool = True, context: int = 4096) -> Served:
    """Five sliding-window layers to one full: 400 x 128 = 51,200 stands for 12,900 tokens."""
    more: dict[str, object] = {"kv_cache_size_tokens": 12900} if sized else {"sliding_window": 512}
    line = cache_info(block_size=128, num_gpu_blocks=400, **more)
    return vllm_server("0.32.0" if sized else "0.23.0", context, line)


def vllm_nixl(*, expired: int = 0, late: int = 0) -> Served:
    """A member of a prefill/decode fleet over NIXL."""
    metrics = cache_info(num_gpu_blocks=1000, kv_cache_size_tokens=16000) + (
        'vllm:nixl_xfer_time_seconds_count{engine="0",model_name="tiny-llama"} 3.0\n'
        'vllm:nixl_num_failed_transfers_total{engine="0",model_name="tiny-llama"} 0.0\n'
        f'vllm:nixl_num_kv_expired_reqs_total{{engine="0",model_name="tiny-llama"}} {expired}.0\n'
        f'vllm:nixl_num_notifications_after_expiry_total{{engine="0",model_name="tiny-llama"}} {late}.0\n'
    )
    return vllm_server("0.32.0", 2048, metrics)


def vllm_development() -> Served:
    """Development mode: the configuration and the acting routes are open."""
    found = vllm_recorded()
    body = {"vllm_config": "model='tiny-llama'", "vllm_env": {}, "system_env": {}}
    found["/server_info"] = (200, json.dumps(body).encode(), JSON)
    return found


PRODUCTION_STACK = (
    "# TYPE vllm:current_qps gauge\n"
    'vllm:num_requests_running{server="http://10.0.0.4:8000"} 1.0\n'
    'vllm:healthy_pods_total{server="http://10.0.0.4:8000"} 1.0\n'
    'vllm:healthy_pods_total{server="http://10.0.0.5:8000"} 1.0\n'
    "router_cpu_usage_percent 3.1\n"
)


def vllm_production_stack(metrics: str = PRODUCTION_STACK) -> Served:
    """The production stack's router: model cards of vLLM, and a version of its own."""
    cards = [
        {"id": name, "created": 1, "owned_by": "vllm", "parent": None} for name in ("llama-8b", "qwen-32b")
    ]
    models = {"object": "list", "data": cards}
    return served({"/version": {"version": "0.1.9"}, "/v1/models": models, "/metrics": metrics})


def vllm_router(*, admin: bool = True) -> Served:
    """vllm-router 0.1.17: it answers with a worker's model card, and has the paths of sglang-router."""
    found = vllm_server("0.32.0", 2048, cache_info(num_gpu_blocks=1000, kv_cache_size_tokens=16000))
    ready = {"status": "ready", "healthy_workers": 2, "total_workers": 2}
    more = served(
        {"/readiness": ready, "/workers": sglang_file("workers-gateway") if admin else UNAUTHORIZED}
    )
    return {**found, "/readiness": more["/readiness"], "/workers": more["/workers"]}


def dynamo_frontend() -> Served:
    """Dynamo's frontend: pools of its workers, one series per worker type."""
    metrics = (
        'dynamo_frontend_model_total_kv_blocks{model="m",dynamo_namespace="ns",worker_type="prefill"} 5120\n'
        'dynamo_frontend_model_kv_cache_block_size{model="m",worker_type="prefill"} 16\n'
        'dynamo_frontend_model_context_length{model="m"} 40960\n'
    )
    listed = {"id": "m", "object": "model", "created": 1, "owned_by": "nvidia", "context_window": 40960}
    return served({"/v1/models": {"object": "list", "data": [listed]}, "/metrics": metrics})


# --- TensorRT-LLM ---------------------------------------------------------------------------------


def trtllm_metrics(
    *, pid: str = "1739", blocks: float = 1180.0, stats: bool = True, length: bool = True
) -> str:
    """``/prometheus/metrics`` of 1.3.0rc29; without ``stats`` no KV gauge is there at all."""
    own = f'engine_type="pytorch",model_name="qwen3-8b",pid="{pid}"'
    maximum = 'max_model_len="16384",' if length else ""
    text = (
        f'trtllm_model_config_info{{dtype="auto",gpu_type="NVIDIA GeForce RTX 4090",{maximum}'
        f'model="/models/Qwen3-8B",quantization="none",served_model_name="qwen3-8b",{own}}} 1.0\n'
        f'trtllm_parallel_config_info{{context_parallel_size="1",gpu_count="1",'
        f'pipeline_parallel_size="1",tensor_parallel_size="1",{own}}} 1.0\n'
        f'trtllm_kv_cache_config_info{{cache_dtype="auto",enable_block_reuse="True",'
        f'enable_partial_reuse="True",free_gpu_memory_fraction="0.9",{own}}} 1.0\n'
        f"trtllm_max_num_tokens_runtime{{{own}}} 0.0\n"
        f"trtllm_max_batch_size_static{{{own}}} 0.0\n"
    )
    if stats:
        text += (
            f"trtllm_kv_cache_max_blocks{{{own}}} {blocks}\n"
            f"trtllm_kv_cache_tokens_per_block{{{own}}} 32.0\n"
            f"trtllm_kv_cache_used_blocks{{{own}}} 0.0\n"
            f"trtllm_kv_cache_reused_blocks_total{{{own}}} 1.0\n"
        )
    return text


def trtllm_server(version: str, more: Mapping[str, Any]) -> Served:
    listed = {"id": "Qwen3-8B", "object": "model", "created": 1790844266, "owned_by": "tensorrt_llm"}
    return served(
        {"/version": {"version": version}, "/v1/models": {"object": "list", "data": [listed]}, **more}
    )


def trtllm_1_3(*, stats: bool = True) -> Served:
    """1.3.0rc29 with return_perf_metrics; ``stats``: with iteration statistics and --max_seq_len too."""
    more = {
        "/prometheus/metrics": trtllm_metrics(stats=stats, length=stats),
        "/server_info": {"disaggregated_params": None, "max_batch_size": 32, "tokens_per_block": 32},
    }
    return trtllm_server("1.3.0rc29", more)


STATISTICS = [
    {
        "gpuMemUsage": 76665782272,
        "iter": 154,
        "iterLatencyMS": 7.0,
        "kvCacheStats": {
            "allocNewBlocks": 3126,
            "freeNumBlocks": 101253,
            "maxNumBlocks": 101256,
            "tokensPerBlock": 32,
            "usedNumBlocks": 3,
        },
        "numActiveRequests": 1,
    }
]


def trtllm_drained(statistics: Any = STATISTICS) -> Served:
    """Prometheus off: the list of /metrics is all there is, and reading empties it."""
    more = {"/metrics": statistics, "/server_info": {"disaggregated_params": None}}
    return trtllm_server("1.2.1", more)


def trtllm_1_1() -> Served:
    """1.1: five metrics without a prefix, no KV gauge."""
    text = 'e2e_request_latency_seconds_count{model_name="m"} 3.0\ntime_to_first_token_seconds_count 3.0\n'
    more = {"/prometheus/metrics": text, "/server_info": {"disaggregated_params": None}}
    return trtllm_server("1.1.0", more)


def trtllm_disaggregated() -> Served:
    """The server of ``trtllm-serve disaggregated``: a router without /v1/models and /metrics."""
    return served({"/version": {"version": "1.3.0rc29"}, "/cluster_info": {"is_ready": True}})


BUILDERS: Mapping[str, tuple[Callable[[], Served], ...]] = {
    "sglang": (
        sglang_0_4_6_post5,
        sglang_0_5_3,
        sglang_0_5_11,
        sglang_prefill_0_5_19,
        sglang_single_0_5_22,
        sglang_dp2_0_5_22,
        sglang_hybrid_0_5_22,
        sglang_rust_0_5_22,
        sglang_router,
    ),
    "vllm": (
        vllm_0_8_5,
        vllm_0_19,
        vllm_over17,
        vllm_dp2,
        vllm_hybrid,
        vllm_nixl,
        vllm_development,
        vllm_production_stack,
    ),
    "trtllm": (
        trtllm_1_3,
        trtllm_drained,
        trtllm_1_1,
        trtllm_disaggregated,
    ),
}
"""Engine -> servers of every release whose answers differ: each is recognised, and every path of each is fuzzed."""
