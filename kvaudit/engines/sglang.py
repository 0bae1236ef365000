"""SGLang, 0.4.6 to 0.5.23, Python and Rust front ends, and the routers that stand before it.

Sources are the released wheels (paths below ``sglang/srt/``): ``entrypoints/http_server.py`` for the
endpoints, ``managers/scheduler_components/internal_state.py`` for ``internal_states``,
``managers/load_snapshot.py`` for ``/v1/loads``. Every field but the version is optional: the Rust
front end shows a short allow-list, and fields come and go between releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kvaudit.engines import _json, _prometheus, register, routers
from kvaudit.engines._sglang_pools import rank_pools
from kvaudit.engines.contract import Answers, Step
from kvaudit.readings import (
    EngineFacts,
    Exposure,
    Reading,
    derived,
    read,
    smallest_pool,
    text,
    tokens,
    unknown,
)

NEW_INFO, OLD_INFO = "/server_info", "/get_server_info"

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

COUNTERS = (
    "sglang:num_bootstrap_failed_reqs_total",
    "sglang:num_transfer_failed_reqs_total",
    "sglang:num_prefill_retries_total",
    "sglang:num_aborted_requests_total",
    "sglang:num_used_tokens",
)

_ARGUMENTS = ("tp_size", "disaggregation_mode", "max_req_input_len", "status")
_ROLES = {"null": "unified", "unified": "unified", "prefill": "prefill", "decode": "decode"}


@dataclass(frozen=True, slots=True)
class _Seen:
    """The answers, parsed once."""

    answers: Answers
    where: str  # "GET /server_info"
    info: Mapping[str, Any]
    states: Sequence[Mapping[str, Any]]
    loads: Mapping[str, Any]
    models: Mapping[str, Any]
    metrics: _prometheus.Metrics

    @property
    def short(self) -> bool:
        """The Rust front end: an allow-list without the server's arguments."""
        return not any(name in self.info for name in _ARGUMENTS)


def _seen(answers: Answers) -> _Seen:
    path = NEW_INFO if _json.mapping(_json.parsed(answers.get(NEW_INFO))) else OLD_INFO
    info = _json.mapping(_json.parsed(answers.get(path)))
    return _Seen(
        answers,
        f"GET {path}",
        info,
        [_json.mapping(state) for state in _json.sequence(info.get("internal_states"))],
        _json.mapping(_json.parsed(answers.get("/v1/loads"))),
        _json.mapping(_json.parsed(answers.get("/v1/models"))),
        _prometheus.parse(answers.get("/metrics")),
    )


class SGLang:
    id: ClassVar[str] = "sglang"
    title: ClassVar[str] = "SGLang"
    plan: ClassVar[Sequence[Step]] = (
        Step(NEW_INFO, identifies=True),
        Step(OLD_INFO, unless=NEW_INFO, identifies=True),
        Step("/v1/models", identifies=True),
        *routers.STEPS,
        Step("/v1/loads"),
        Step("/metrics"),
    )
    gets: ClassVar[frozenset[str]] = frozenset({"/model_info", "/health", "/openapi.json", "/ready"})
    posts: ClassVar[frozenset[str]] = frozenset(
        {"/generate", "/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/tokenize"}
    )

    def recognises(self, answers: Answers) -> bool:
        seen = _seen(answers)
        if routers.is_gateway(answers):
            return True
        if "version" in seen.info and ("internal_states" in seen.info or "max_total_num_tokens" in seen.info):
            return True
        cards = (_json.mapping(card) for card in _json.sequence(seen.models.get("data")))
        return seen.metrics.any_with("sglang:") or any(card.get("owned_by") == "sglang" for card in cards)

    def facts(self, answers: Answers) -> EngineFacts:
        if routers.is_gateway(answers):
            return routers.gateway_facts(self.id, answers)
        seen = _seen(answers)
        ranks, notes = rank_pools(seen.where, seen.info, seen.states, seen.loads, seen.metrics, answers)
        role = _role(seen)
        return EngineFacts(
            engine=self.id,
            version=_version(seen),
            model=_model(seen),
            revision=text(seen.info.get("revision"), f"{seen.where} revision"),
            context=_context(seen),
            pool=smallest_pool(ranks),
            input_limit=_input_limit(seen),
            role=role,
            process=_process(seen),
            ranks=ranks,
            settings={
                name: _json.setting(seen.info[name], f"{seen.where} {name}")
                for name in SETTINGS
                if name in seen.info
            },
            conditions=_conditions(seen, role),
            features=_features(seen),
            components=_components(seen, role),
            exposures=_exposures(answers),
            counters={name: total for name in COUNTERS if (total := seen.metrics.total(name)) is not None},
            notes=(*notes, *_notes(seen, role)),
        )


def _version(seen: _Seen) -> Reading[str]:
    reported = text(seen.info.get("version"), f"{seen.where} version")
    loads = text(seen.loads.get("version"), "GET /v1/loads version")
    if reported.known and loads.known and reported.value != loads.value:
        return unknown(
            f"{reported.source} is {reported.value} but {loads.source} is {loads.value}: "
            "two processes answered; address one process"
        )
    if reported.known or loads.known:
        return reported if reported.known else loads
    return unknown(_json.why_not(seen.answers, NEW_INFO, OLD_INFO, "/v1/loads"))


def _base_cards(seen: _Seen) -> list[Mapping[str, Any]]:
    """Cards of the model itself; a LoRA adapter's card has a parent and no length."""
    cards = (_json.mapping(card) for card in _json.sequence(seen.models.get("data")))
    return [card for card in cards if card and card.get("parent") is None]


def _model(seen: _Seen) -> Reading[str]:
    name = text(seen.info.get("served_model_name"), f"{seen.where} served_model_name")
    if name.known:
        return name
    for card in _base_cards(seen):
        return text(card.get("id"), "GET /v1/models data[].id")
    return text(seen.info.get("model_path"), f"{seen.where} model_path")


def _context(seen: _Seen) -> Reading[int]:
    """The effective context. ``context_length`` comes last: it is what was asked for on the
    command line and null unless set; the effective value is in the model card."""
    source = "GET /v1/models data[].max_model_len"
    cards = [tokens(card.get("max_model_len"), source) for card in _base_cards(seen)]
    known = [reading for reading in cards if reading.known]
    if known:
        return max(known, key=lambda reading: reading.value or 0)
    for sample in seen.metrics.samples("sglang:context_len"):
        gauge = tokens(sample.value, "GET /metrics sglang:context_len")
        if gauge.known:
            return gauge
    for name in ("max_context_length", "context_length"):
        field = tokens(seen.info.get(name), f"{seen.where} {name}")
        if field.known:
            return field
    return unknown(
        f"{_json.why_not(seen.answers, '/v1/models')}; no sglang:context_len in /metrics; "
        f"context_length is {_json.label(seen.info.get('context_length', 'absent'), 40)}"
    )


def _input_limit(seen: _Seen) -> Reading[int]:
    """``max_req_input_len`` as read: the first length the scheduler refuses. It is never
    recomputed, since hybrid, context-parallel and diffusion models subtract differently."""
    if seen.info and seen.short and "max_req_input_len" not in seen.info:
        return unknown("the Rust front end does not list max_req_input_len")
    return tokens(seen.info.get("max_req_input_len"), f"{seen.where} max_req_input_len")


def _role(seen: _Seen) -> Reading[str]:
    """The live role of the ranks, else the one of the loads, else the start-up one."""
    live = [state.get("disaggregation_mode") for state in seen.states if "disaggregation_mode" in state]
    loads = [
        _json.mapping(_json.mapping(load).get("disaggregation")).get("mode")
        for load in _json.sequence(seen.loads.get("loads"))
    ]
    start = [seen.info["disaggregation_mode"]] if "disaggregation_mode" in seen.info else []
    gauge = [
        sample.labels.get("engine_type") for sample in seen.metrics.samples("sglang:prompt_tokens_total")
    ]
    for source, values in (
        (f"{seen.where} internal_states[].disaggregation_mode", live),
        ("GET /v1/loads loads[].disaggregation.mode", [mode for mode in loads if mode is not None]),
        (f"{seen.where} disaggregation_mode", start),
        ("GET /metrics label engine_type", [kind for kind in gauge if kind is not None]),
    ):
        if not values:
            continue
        roles = {_ROLES.get(value) if isinstance(value, str) else None for value in values}
        if len(roles) == 1 and (role := roles.pop()) is not None:
            return read(role, source)
        return unknown(f"{source} is {', '.join(sorted({_json.label(value, 40) for value in values}))[:200]}")
    return unknown(f"no role in {seen.where}, /v1/loads or /metrics; declare it")


def _process(seen: _Seen) -> Reading[str]:
    """``startup_time`` holds durations measured once at start: their digest names the start."""
    started = seen.info.get("startup_time")
    source = f"{seen.where} startup_time (digest)"
    if not started:
        parts = sorted(
            _json.digest(state["startup_time"]) for state in seen.states if state.get("startup_time")
        )
        started, source = parts, f"{seen.where} internal_states[].startup_time (digest)"
    name = _json.digest(started) if started else ""
    return derived(name, source) if name else unknown(f"no startup_time in {seen.where}")


def _conditions(seen: _Seen, role: Reading[str]) -> dict[str, bool]:
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
    if any("token_capacity_swa" in _json.mapping(state.get("memory_usage")) for state in seen.states):
        found["hybrid_kv"] = any(
            _json.mapping(state.get("memory_usage")).get("token_capacity_swa") is not None
            for state in seen.states
        )
    npu = _on_ascend(seen)
    if npu is not None:
        found["ascend_npu"] = npu
    backend = seen.info.get("disaggregation_transfer_backend")
    store = seen.info.get("hicache_storage_backend")
    if role.known and isinstance(backend, str):
        # The backend has a default ("mooncake") that means nothing while the role is unified.
        disaggregated = found["pd_disaggregation"]
        found["mooncake"] = (disaggregated and backend == "mooncake") or store == "mooncake"
        found["nixl"] = (disaggregated and backend == "nixl") or store == "nixl"
    return found


def _on_ascend(seen: _Seen) -> bool | None:
    device, accelerator = seen.info.get("device"), seen.loads.get("accelerator")
    if isinstance(device, str) and device:
        return device.lower() == "npu"
    if isinstance(accelerator, str) and accelerator:
        return "ascend" in accelerator.lower()
    return True if seen.info.get("disaggregation_transfer_backend") == "ascend" else None


def _features(seen: _Seen) -> dict[str, bool]:
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


def _components(seen: _Seen, role: Reading[str]) -> dict[str, str]:
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


def _exposures(answers: Answers) -> tuple[Exposure, ...]:
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


def _notes(seen: _Seen, role: Reading[str]) -> list[str]:
    said = []
    if seen.info and seen.short:
        said.append("the Rust front end lists few fields: no role, no limits and no arguments")
    start = seen.info.get("disaggregation_mode")
    if role.known and isinstance(start, str) and _ROLES.get(start) not in (None, role.value):
        said.append(f"the role was switched at run time: started as {_ROLES[start]}, now {role.value}")
    if not seen.info and _json.status(seen.answers, "/v1/models") == 200:
        said.append(f"no server information: {_json.why_not(seen.answers, NEW_INFO, OLD_INFO)}")
    return said


register(SGLang())
