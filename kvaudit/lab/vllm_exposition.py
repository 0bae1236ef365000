"""``/metrics`` of a vLLM node: names and labels as recorded from 0.32.0, fewer of them."""

from __future__ import annotations

from kvaudit.lab.counters import Histogram
from kvaudit.lab.exposition import Exposition
from kvaudit.lab.node import Node
from kvaudit.lab.sglang_documents import at_least


def vllm_metrics(node: Node) -> str:
    """``vllm:nixl_*`` only on members of a prefill/decode pair: their presence says so."""
    out = Exposition({"engine": "0", "model_name": node.config.model})
    pool, counters, cache = node.pool, node.counters, node.cache
    used = pool.used_tokens - cache.cached_tokens
    out.gauge("vllm:num_requests_running", node.running, "Number of requests in model execution batches.")
    out.gauge("vllm:num_requests_waiting", node.waiting, "Number of requests waiting to be processed.")
    out.gauge("vllm:engine_sleep_state", 1.0, "Engine sleep state", sleep_state="awake")
    out.gauge(
        "vllm:kv_cache_usage_perc", used / max(pool.capacity, 1), "KV-cache usage. 1 means 100 percent."
    )
    out.counter("vllm:prefix_cache_queries", cache.queries, "Prefix cache queries, in tokens.")
    out.counter("vllm:prefix_cache_hits", cache.hits, "Prefix cache hits, in tokens.")
    out.counter("vllm:external_prefix_cache_queries", 0, "External prefix cache queries, in tokens.")
    out.counter("vllm:external_prefix_cache_hits", 0, "External prefix cache hits, in tokens.")
    out.counter("vllm:num_preemptions", 0)
    out.counter("vllm:prompt_tokens", counters.prompt_tokens)
    source = "external_kv_transfer" if node.role == "decode" else "local_compute"
    out.counter("vllm:prompt_tokens_by_source", counters.prompt_tokens, source=source)
    out.counter("vllm:prompt_tokens_cached", counters.cached_tokens)
    if at_least(node.config.version, "0.32.0"):
        out.counter("vllm:prompt_tokens_cached_by_source", counters.cached_tokens, source="device")
    out.counter("vllm:generation_tokens", counters.generated_tokens)
    for reason in ("stop", "length", "abort"):
        out.counter("vllm:request_success", counters.finished[reason], finished_reason=reason)
    out.histogram("vllm:time_to_first_token_seconds", counters.first_token)
    out.histogram("vllm:e2e_request_latency_seconds", counters.end_to_end)
    # Not counted by the lab; a real one registers them before its first request, and their absence would be a lie.
    out.histogram("vllm:inter_token_latency_seconds", Histogram())
    out.histogram("vllm:request_time_per_output_token_seconds", Histogram())
    if node.role != "unified":
        out.counter("vllm:nixl_num_failed_transfers", counters.transfer_failed)
        out.counter("vllm:nixl_num_failed_notifications", 0)
        out.counter("vllm:nixl_num_kv_expired_reqs", counters.expired_leases)
        out.counter("vllm:nixl_num_notifications_after_expiry", counters.reads_after_expiry)
    labels = {
        "block_size": str(pool.page_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(cache.enabled),
        "gpu_memory_utilization": "0.92",
        "kv_cache_max_concurrency": str(round(pool.capacity / node.context, 2)),
        "kv_cache_size_tokens": str(pool.capacity),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(pool.pages),
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
    }
    info = Exposition({"engine": "0"})
    info.gauge("vllm:cache_config_info", 1.0, "Information of the LLMEngine CacheConfig", **labels)
    start = f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {node.started}\n"
    return start + out.text() + info.text()
