"""What SGLang's arguments and metrics say about its configuration: settings, conditions, features."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.engines import _json
from kvaudit.auditor.engines.answers import Answers
from kvaudit.auditor.engines.sglang.seen import ParsedAnswers
from kvaudit.auditor.readings import Exposure, Reading

SETTINGS = (
    "model_path",
    "weight_version",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "page_size",
    "tp_size",
    "pp_size",
    "dp_size",
    "attn_dp_size",
    "dcp_size",
    "ep_size",
    "nnodes",
    "mem_fraction_static",
    "max_total_tokens",
    "max_running_requests",
    "max_prefill_tokens",
    "chunked_prefill_size",
    "cuda_graph_max_bs",
    "cuda_graph_bs",
    "cuda_graph_max_bs_decode",
    "cuda_graph_max_bs_prefill",
    "cuda_graph_bs_decode",
    "cuda_graph_bs_prefill",
    "disable_cuda_graph",
    "swa_full_tokens_ratio",
    "max_mamba_cache_size",
    "disable_radix_cache",
    "radix_eviction_policy",
    "schedule_policy",
    "load_balance_method",
    "allow_auto_truncate",
    "disaggregation_transfer_backend",
    "disaggregation_enable_kv_checksum",
    "disaggregation_decode_enable_radix_cache",
    "enable_pd_role_switch",
    "num_reserved_decode_tokens",
    "optimistic_prefill_attempts",
    "enable_hierarchical_cache",
    "hicache_storage_backend",
    "enable_lmcache",
    "speculative_algorithm",
    "enable_cache_report",
    "kv_canary",
)
"""Server arguments (CLI flags with ``_``) that describe the configuration which evidence belongs to.
``cuda_graph_max_bs`` and ``cuda_graph_bs`` exist up to 0.5.11; by 0.5.19 they end in the phase."""

FEATURES = (
    "launch_command",
    "frontend",
    "disaggregation_enable_kv_checksum",
    "enable_pd_role_switch",
    "disaggregation_decode_host_receive_threshold",
    "attn_dp_size",
    "disaggregation_decode_allocation_policy",
    "hicache_object_layout",
    "enable_http_worker_reuseport",
    "cuda_graph_max_bs",
)
"""Fields whose presence dates a build (found by comparing wheels): ``launch_command`` >= 0.5.20,
``frontend`` to ``..._threshold`` >= 0.5.21, ``attn_dp_size``, ``..._allocation_policy`` >= 0.5.22,
the next two >= 0.5.23; ``cuda_graph_max_bs`` <= 0.5.18."""

METRIC_FEATURES = (
    "sglang:num_decode_host_receive_queue_reqs",  # >= 0.5.21
    "sglang:decode_deferred_kv_release_total",  # >= 0.5.22
    "sglang:prealloc_full_token_usage",  # >= 0.5.23
)


def settings(seen: ParsedAnswers) -> dict[str, Reading[Any]]:
    """The arguments of `SETTINGS` that the answer has; null is unknown, absent is left out."""
    return {
        name: _json.setting(seen.info[name], f"{seen.where} {name}") for name in SETTINGS if name in seen.info
    }


def conditions(seen: ParsedAnswers, role: Reading[str]) -> dict[str, bool]:
    """Answers to advisory conditions; what the answers do not tell is absent."""
    found: dict[str, bool] = {}
    if role.known:
        found["pd_disaggregation"] = found["pd_or_kv_connector"] = role.value in ("prefill", "decode")
    for name, argument in (
        ("hicache", "enable_hierarchical_cache"),
        ("lmcache", "enable_lmcache"),
        ("allow_auto_truncate", "allow_auto_truncate"),
        ("kv_checksum", "disaggregation_enable_kv_checksum"),
        ("deterministic_inference", "enable_deterministic_inference"),
        ("enable_flashinfer_mla", "enable_flashinfer_mla"),
        ("lora", "enable_lora"),
    ):
        if isinstance(seen.info.get(argument), bool):
            found[name] = seen.info[argument]
    if isinstance(seen.info.get("disable_radix_cache"), bool):
        found["radix_cache"] = found["prefix_caching"] = not seen.info["disable_radix_cache"]
    chunk = seen.info.get("chunked_prefill_size")
    if isinstance(chunk, int) and not isinstance(chunk, bool):
        found["chunked_prefill"] = chunk > 0
    if "speculative_algorithm" in seen.info:
        algorithm = seen.info["speculative_algorithm"]
        if algorithm is None or isinstance(algorithm, str):
            found["speculative"] = bool(algorithm)
            found["speculative_ngram"] = (algorithm or "").upper() == "NGRAM"
    cards = (_json.mapping(card) for card in _json.sequence(seen.models.get("data")))
    if any(isinstance(card.get("parent"), str) for card in cards):
        found["lora"] = True
    senses = [seen.model.get(f"has_{sense}_understanding") for sense in ("image", "audio")]
    if all(isinstance(sense, bool) for sense in senses):
        found["multimodal"] = True in senses
    if _mixes_caches(seen):
        found["hybrid_kv"] = True
    npu = _on_ascend(seen)
    if npu is not None:
        found["ascend_npu"] = npu
    backend = seen.info.get("disaggregation_transfer_backend")
    store = seen.info.get("hicache_storage_backend")
    if found.get("hicache") is False or (found.get("hicache") and "hicache_storage_backend" in seen.info):
        found["hicache_storage"] = found["hicache"] and store is not None
    if role.known and isinstance(backend, str):
        # The backend has a default ("mooncake") that means nothing while the role is unified.
        disaggregated = found["pd_disaggregation"]
        found["mooncake"] = (disaggregated and backend == "mooncake") or store == "mooncake"
        found["nixl"] = (disaggregated and backend == "nixl") or store == "nixl"
    return found


def _mixes_caches(seen: ParsedAnswers) -> bool:
    """Whether a window's pool or Mamba states are shown. That neither is proves nothing: no argument or number tells of
    the states of a hybrid model unless its metrics are on (reference sglang.md 1.6)."""
    windows = [_json.mapping(state.get("memory_usage")).get("token_capacity_swa") for state in seen.states]
    states = any(name.startswith("sglang:mamba_") for name in seen.metrics.lines)
    return states or any(window is not None for window in windows)


def _on_ascend(seen: ParsedAnswers) -> bool | None:
    device, accelerator = seen.info.get("device"), seen.loads.get("accelerator")
    if isinstance(device, str) and device:
        return device.lower() == "npu"
    if isinstance(accelerator, str) and accelerator:
        return "ascend" in accelerator.lower()
    return True if seen.info.get("disaggregation_transfer_backend") == "ascend" else None


def features(seen: ParsedAnswers) -> dict[str, bool]:
    found: dict[str, bool] = {}
    if seen.info and not seen.short:
        found.update({name: name in seen.info for name in FEATURES})
        if any("launch_command" in answer.exposed for answer in seen.answers.values()):
            found["launch_command"] = True
    # These metrics belong to a role or a switch: presence dates a build, absence says nothing.
    found.update({name: True for name in METRIC_FEATURES if name in seen.metrics})
    for path in ("/get_load", "/weight_version", "/ready"):
        if path in seen.answers and _json.status(seen.answers, path) in (200, 404):
            found[path] = _json.ok(seen.answers, path)
    return found


def components(seen: ParsedAnswers, role: Reading[str]) -> dict[str, str]:
    """Transfer and storage parts in use; SGLang does not tell their versions."""
    found: dict[str, str] = {}
    backend = seen.info.get("disaggregation_transfer_backend")
    if role.value in ("prefill", "decode") and isinstance(backend, str) and backend:
        found[_json.label(backend)] = ""
    store = seen.info.get("hicache_storage_backend")
    if isinstance(store, str) and store:
        found[_json.label(store)] = ""
    if seen.info.get("enable_lmcache") is True:
        found["lmcache"] = ""
    return found


def exposures(answers: Answers) -> tuple[Exposure, ...]:
    """Secrets that came in clear. An ``api_key`` in the answer means that a key was needed to get
    it; an admin key without one means that ordinary endpoints are open (``utils/auth.py``)."""
    found = []
    for path, answer in answers.items():
        names = sorted({name.rpartition(".")[2] for name in answer.exposed})
        if not names:
            continue
        guarded = "api_key" in names or not {"admin_api_key", "ssl_keyfile_password"} & set(names)
        found.append(Exposure(f"{', '.join(names)} in clear", f"GET {path}", "warn" if guarded else "fail"))
    return tuple(found)
