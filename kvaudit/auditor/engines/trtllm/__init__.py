"""TensorRT-LLM: its server knows no key at all, and one of its reads takes statistics away from other readers."""

from __future__ import annotations

from kvaudit.auditor.engines.descriptor import Engine, Surface

ENGINE = Engine(
    id="trtllm",
    title="TensorRT-LLM",
    order=3,
    images=("tensorrt-llm/release", "tensorrt-llm"),
    aliases=("tensorrt-llm", "tensorrt_llm", "trt-llm"),
    surface=Surface(
        # Not /metrics: it hands its queued statistics to whoever asks first.
        reads={
            "/v1/models": "models",
            "/version": "version",
            "/prometheus/metrics": "metrics",
            "/openapi.json": "routes",
        },
        listed=True,
        acting=(
            "/release_memory",
            "/resume_memory",
            "/update_weights*",
            "/start_profile",
            "/stop_profile",
            "/v1/kv_cache_hints",
            "/_control/*",
            "/_resource_governor/*",
        ),
        inert=(
            "/v1/*",
            "/health*",
            "/version",
            "/metrics",
            "/prometheus/metrics",
            "/perf_metrics",
            "/energy_metrics",
            "/kv_cache_events",
            "/server_info",
            "/cluster_info",
            "/steady_clock_offset",
            "/_internal/*",
        ),
    ),
)
