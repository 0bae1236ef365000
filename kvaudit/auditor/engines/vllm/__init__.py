"""vLLM: its key guards some prefixes alone, and its development mode is open even when a key is set."""

from __future__ import annotations

from kvaudit.auditor.engines.descriptor import Engine, Surface

ENGINE = Engine(
    id="vllm",
    title="vLLM",
    order=2,
    images=(
        "vllm",
        "vllm-openai",
        "vllm-openai-cpu",
        "vllm-openai-rocm",
        "vllm-openai-xpu",
        "vllm-cpu",
        "vllm-tpu",
    ),
    cached_tokens_flag="--enable-prompt-tokens-details",
    connectors_since={"nixl": "0.11.2"},
    unequal_pages_since={"nixl": "0.12.0"},  # vllm#26759, after vllm#26744
    features_since={
        "kv_cache_usage_perc": "0.9.0",
        "inter_token_latency": "0.10.2",
        "external_prefix_cache": "0.11.2",
        "request_time_per_output_token": "0.12.0",
        "prompt_tokens_by_source": "0.16.0",
        "kv_cache_size_tokens": "0.24.0",
        "prompt_tokens_cached_by_source": "0.32.0",
    },
    # Metrics are registered, with their series, before the first request.
    always_shown=frozenset(
        {
            "kv_cache_usage_perc",
            "inter_token_latency",
            "external_prefix_cache",
            "request_time_per_output_token",
            "prompt_tokens_by_source",
            "kv_cache_size_tokens",
            "prompt_tokens_cached_by_source",
        }
    ),
    surface=Surface(
        reads={
            "/v1/models": "models",
            "/version": "version",
            "/metrics": "metrics",
            "/server_info": "configuration",
            "/openapi.json": "routes",
        },
        listed=True,
        guarded=("/v1/", "/v2/", "/inference/", "/cohere/"),
        acting=(
            "/collective_rpc",
            "/sleep",
            "/wake_up",
            "/pause",
            "/resume",
            "/abort_requests",
            "/update_weights*",
            "/start_weight_update",
            "/finish_weight_update",
            "/init_weight_transfer_engine",
            "/reset_*",
            "/release_kv_cache_memory",
            "/start_profile",
            "/stop_profile",
            # With runtime LoRA updating; one add_lora() hands requests in flight another adapter (vllm#47724).
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
        ),
        inert=(
            "/v1/*",
            "/v2/*",
            "/inference/*",
            "/cohere/*",
            "/health",
            "/load",
            "/ping",
            "/version",
            "/metrics",
            "/server_info",
            "/is_sleeping",
            "/is_paused",
            "/is_scaling_elastic_ep",
            "/kv_event_sources",
            "/get_world_size",
        ),
        inference=("/pooling", "/classify", "/score", "/rerank", "/generative_scoring"),
        # Outside the guarded prefixes (vllm#58144), seen on 0.27.1 to 0.32.0.
        completions=("/invocations",),
        tokenizers=("/tokenize", "/detokenize"),
        scaling=("/scale_elastic_ep",),
    ),
)
