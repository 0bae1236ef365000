"""SGLang: one pool per data-parallel rank, roles that may change at run time, routers that answer for their workers."""

from __future__ import annotations

from kvaudit.auditor.engines.descriptor import Engine, Surface

ENGINE = Engine(
    id="sglang",
    title="SGLang",
    order=1,
    images=("sglang",),
    roles_since="0.4.6",
    input_margin=6,  # 0.4.6 to 0.5.22: max_req_input_len = min(context, pool) - 6
    cached_tokens_flag="--enable-cache-report",
    features_since={
        "launch_command": "0.5.20",
        "/ready": "0.5.20",
        "frontend": "0.5.21",
        "disaggregation_enable_kv_checksum": "0.5.21",
        "enable_pd_role_switch": "0.5.21",
        "disaggregation_decode_host_receive_threshold": "0.5.21",
        "sglang:num_decode_host_receive_queue_reqs": "0.5.21",
        "attn_dp_size": "0.5.22",
        "disaggregation_decode_allocation_policy": "0.5.22",
        "sglang:decode_deferred_kv_release_total": "0.5.22",
        "hicache_object_layout": "0.5.23",
        "enable_http_worker_reuseport": "0.5.23",
        "sglang:prealloc_full_token_usage": "0.5.23",
    },
    features_until={"/get_load": "0.5.20", "/weight_version": "0.5.20", "cuda_graph_max_bs": "0.5.18"},
    surface=Surface(
        reads={
            "/server_info": "configuration",
            "/get_server_info": "configuration",
            "/v1/models": "models",
            "/metrics": "metrics",
            "/openapi.json": "routes",
        },
        # Which routes are open follows from which keys are set (utils/auth.py), so the list of routes decides nothing.
        keys=("api_key", "admin_api_key"),
        unlocked="flush_cache, abort_request, LoRA adapters, weight updates, role switch",
    ),
)
