"""Writes what an SGLang node says about itself: field names and shapes by version, as in the released source
(0.5.19 to 0.5.23). Secrets stand in clear in /server_info, as in the real one; here they are fake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from packaging.version import InvalidVersion, Version

from kvaudit.lab.clock import wall
from kvaudit.lab.node import Node

MODES = {"unified": "null", "prefill": "prefill", "decode": "decode"}


def at_least(version: str, release: str) -> bool:
    """Whether the lab's build has the features of ``release`` (a nightly has them all)."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return True
    return parsed.is_devrelease or parsed >= Version(release)


def server_info(node: Node, port: int) -> dict[str, Any]:
    """``GET /server_info``: server args, the scheduler's numbers, and one internal state per rank."""
    config, version, mode = node.config, node.config.version, MODES[node.role]
    arguments: dict[str, Any] = {
        "model_path": f"kvaudit/{config.model}",
        "served_model_name": config.model,
        "tokenizer_path": f"kvaudit/{config.model}",
        "context_length": node.context,
        "dtype": "auto",
        "quantization": None,
        "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.86,
        "max_running_requests": 64,
        "max_total_tokens": None,
        "chunked_prefill_size": 8192,
        "max_prefill_tokens": 16384,
        "page_size": config.page_size,
        "swa_full_tokens_ratio": 0.8,
        "disable_radix_cache": config.prefix_cache == "off",
        "radix_eviction_policy": "lru",
        "schedule_policy": "fcfs",
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "dcp_size": 1,
        "ep_size": 1,
        "enable_dp_attention": False,
        "load_balance_method": "auto",
        "nnodes": 1,
        "node_rank": 0,
        "host": "127.0.0.1",
        "port": port,
        "api_key": config.node_key or None,
        "admin_api_key": config.admin_key or None,
        "ssl_keyfile_password": config.keyfile_password or None,
        "weight_version": "default",
        "enable_metrics": True,
        "enable_cache_report": config.cache_report,
        "allow_auto_truncate": config.allow_auto_truncate,
        "disaggregation_mode": mode,
        "disaggregation_transfer_backend": "mooncake",
        "disaggregation_bootstrap_port": 8998,
        "optimistic_prefill_attempts": 0,
        "num_reserved_decode_tokens": 512,
        "disaggregation_decode_enable_radix_cache": False,
        "enable_hierarchical_cache": node.cache.host_pages > 0,
        "hicache_storage_backend": None,
        "enable_lmcache": False,
        "speculative_algorithm": None,
        "kv_canary": None,
        "num_continuous_decode_steps": 8,
        "cuda_graph_max_bs_decode": 64,
        "cuda_graph_bs_decode": [1, 2, 4, 8, 16, 32, 64],
    }
    if at_least(version, "0.5.21"):
        arguments |= {
            "disaggregation_enable_kv_checksum": False,
            "enable_pd_role_switch": False,
            "disaggregation_decode_host_receive_threshold": 0,
        }
    if at_least(version, "0.5.22"):
        arguments |= {"attn_dp_size": 1, "disaggregation_decode_allocation_policy": "lazy"}
    startup = {
        "load_weight": 0.01,
        "kv_cache_allocation": node.allocation_seconds,
        "scheduler_e2e": round(0.05 + node.allocation_seconds, 6),
        "cuda_graph": {"decode": 0.0},
    }
    document = dict(arguments)
    if at_least(version, "0.5.20"):
        document["launch_command"] = _launch_command(node, port)
    state = arguments | {
        "world_size": 1,
        "startup_time": startup,
        "effective_max_running_requests_per_dp": 64,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 0.01,
            "kvcache": round(node.pool.keys.nbytes / 2**30, 4),
            "startup_available": 1.0,
            "token_capacity": node.pool.capacity,
            "token_capacity_swa": None,
            "graph": {"decode": 0.0},
        },
    }
    if at_least(version, "0.5.21"):
        state |= {"decode_cuda_graph_bs": [1, 2, 4], "decode_cuda_graph_memory_gb": 0.0}
    document |= {
        "status": "ready",
        "max_total_num_tokens": node.pool.capacity,
        "max_req_input_len": node.max_req_input_len,
        "startup_time": startup | {"tokenizer_e2e": 0.01},
        "kv_events": None,
        "internal_states": [state],
        "version": version,
    }
    if at_least(version, "0.5.21"):
        document["frontend"] = "python"
    if at_least(version, "0.5.23"):
        document["hicache_object_layout"] = None
    return document


def _launch_command(node: Node, port: int) -> str:
    config = node.config
    words = [f"python -m sglang.launch_server --model-path kvaudit/{config.model} --port {port}"]
    if node.role != "unified":
        words.append(f"--disaggregation-mode {node.role}")
    if config.allow_auto_truncate:
        words.append("--allow-auto-truncate")
    for flag, secret in (("--api-key", config.node_key), ("--admin-api-key", config.admin_key)):
        if secret:
            words.append(f"{flag} {secret}")
    return " ".join(words)


def loads(node: Node) -> dict[str, Any]:
    """``GET /v1/loads``: the numbers of each data-parallel rank."""
    used = node.pool.used_tokens - node.cache.cached_tokens
    capacity = max(node.pool.capacity, 1)
    stages, counters = node.stages, node.counters
    return {
        "timestamp": datetime.fromtimestamp(wall(), UTC).isoformat(),
        "version": node.config.version,
        "accelerator": "kvaudit lab (numpy)",
        "num_accelerators": 1,
        "loads": [
            {
                "timestamp": wall(),
                "dp_rank": 0,
                "num_running_reqs": node.running,
                "num_waiting_reqs": node.waiting,
                "num_waiting_uncached_tokens": 0,
                "num_used_tokens": used,
                "num_total_tokens": used,
                "num_active_tokens": used,
                "num_prealloc_ready_tokens": 0,
                "max_total_num_tokens": node.pool.capacity,
                "max_running_requests": 64,
                "token_usage": round(used / capacity, 4),
                "gen_throughput": 0.0,
                "cache_hit_rate": round(node.cache.hits / node.cache.queries, 4)
                if node.cache.queries
                else 0.0,
                "utilization": round(used / capacity, 4),
                "total_prefill_uncached_tokens": counters.uncached_tokens,
                "total_prefill_busy_us": int(counters.prefill_busy * 1e6),
                "decode_moments": None,
                "memory": {
                    "weight_gb": 0.01,
                    "kv_cache_gb": round(node.pool.keys.nbytes / 2**30, 4),
                    "graph_gb": 0.0,
                    "token_capacity": node.pool.capacity,
                },
                "disaggregation": {
                    "mode": MODES[node.role],
                    "prefill_bootstrap_queue_reqs": stages["prefill_bootstrap"],
                    "prefill_inflight_queue_reqs": stages["prefill_inflight"],
                    "decode_prealloc_queue_reqs": stages["decode_prealloc"],
                    "decode_transfer_queue_reqs": stages["decode_transfer"],
                    "decode_retracted_queue_reqs": 0,
                    "kv_transfer_speed_gb_s": 0.0,
                    "kv_transfer_latency_ms": 0.0,
                },
            }
        ],
    }


def model_info(node: Node) -> dict[str, Any]:
    document: dict[str, Any] = {
        "model_path": f"kvaudit/{node.config.model}",
        "tokenizer_path": f"kvaudit/{node.config.model}",
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "induction",
        "architectures": ["InductionCopier"],
        "served_model_name": node.config.model,
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
    }
    if at_least(node.config.version, "0.5.21"):
        document["disaggregation_mode"] = MODES[node.role]
    return document


def models(node: Node) -> dict[str, Any]:
    card = {
        "id": node.config.model,
        "object": "model",
        "created": int(wall()),
        "owned_by": "sglang",
        "root": node.config.model,
        "parent": None,
        "max_model_len": node.context,
    }
    return {"object": "list", "data": [card]}
