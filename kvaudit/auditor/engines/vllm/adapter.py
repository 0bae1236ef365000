"""vLLM, 0.8 to 0.33: ``/version``, ``/v1/models`` and the labels of ``vllm:cache_config_info``.

The gauge carries ``str()`` of every attribute of ``CacheConfig`` (``config/cache.py:
metrics_info``): labels come and go, values are Python reprs ("None", "True"). Facts are from
recorded answers of 0.32.0 and from the source of the released wheels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kvaudit.auditor.engines import _json, routers
from kvaudit.auditor.engines.answers import Answers, Step
from kvaudit.auditor.engines.vllm import ENGINE
from kvaudit.auditor.engines.vllm.context import read_context
from kvaudit.auditor.engines.vllm.pools import CACHE_INFO, hybrid, rank_pools
from kvaudit.auditor.engines.vllm.seen import ParsedAnswers, base_cards, cards, parse_answers
from kvaudit.auditor.readings import (
    EngineFacts,
    Exposure,
    Reading,
    derived,
    read,
    smallest_pool,
    text,
    unknown,
)

SETTINGS: Mapping[str, str] = {
    "block_size": "page_size",
    "cache_dtype": "kv_cache_dtype",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "num_gpu_blocks_override": "num_gpu_blocks_override",
    "enable_prefix_caching": "enable_prefix_caching",
    "prefix_caching_hash_algo": "prefix_caching_hash_algo",
    "sliding_window": "sliding_window",
    "mamba_block_size": "mamba_block_size",
    "kv_offloading_size": "kv_offloading_size",
}
"""Label of ``vllm:cache_config_info`` -> setting; block size and cache type have the names that
all engines share, so that a pair can be compared."""

COUNTERS = (
    "vllm:nixl_num_failed_transfers_total",
    "vllm:nixl_num_failed_notifications_total",
    "vllm:nixl_num_kv_expired_reqs_total",
    "vllm:nixl_num_notifications_after_expiry_total",
    "vllm:corrupted_requests_total",
    "vllm:num_preemptions_total",
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
)

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect

METRIC_FEATURES: Mapping[str, str] = {
    "vllm:external_prefix_cache_queries_total": "external_prefix_cache",
    "vllm:inter_token_latency_seconds_bucket": "inter_token_latency",
    "vllm:request_time_per_output_token_seconds_bucket": "request_time_per_output_token",
    "vllm:prompt_tokens_by_source_total": "prompt_tokens_by_source",
    "vllm:prompt_tokens_cached_by_source_total": "prompt_tokens_cached_by_source",
    "vllm:kv_cache_usage_perc": "kv_cache_usage_perc",
}
"""Metric whose presence dates a build -> trait; the releases stand in the descriptor (``features_since``)."""


class VLLM:
    id: ClassVar[str] = ENGINE.id
    title: ClassVar[str] = ENGINE.title
    plan: ClassVar[Sequence[Step]] = (
        Step("/version", identifies=True),
        Step("/v1/models", identifies=True),
        Step("/server_info", identifies=True),  # development mode only
        *routers.STEPS,
        Step("/metrics", process=True),
    )
    gets: ClassVar[frozenset[str]] = frozenset({"/openapi.json", "/health", "/load", "/ping"})
    posts: ClassVar[frozenset[str]] = frozenset(
        {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize"}
    )

    def dialect(self) -> Dialect:
        """How active checks ask it; imported only then."""
        from kvaudit.auditor.engines.completion import Dialect

        return Dialect()

    def recognises(self, answers: Answers) -> bool:
        """By the owner of its model card, its metrics or its development route; without the key,
        by an open ``/version`` beside ``/v1/models`` that asks for one in vLLM's words."""
        seen = parse_answers(answers)
        if any(card.get("owned_by") == "vllm" for card in cards(seen)):
            return True
        if seen.metrics.any_with("vllm:") or _development_mode(answers) or _dynamo(seen):
            return True
        refused = answers.get("/v1/models")
        return (
            refused is not None
            and refused.status == 401
            and _json.status(answers, "/server_info") == 404
            and isinstance(_json.mapping(_json.parsed(answers.get("/version"))).get("version"), str)
        )

    def facts(self, answers: Answers) -> EngineFacts:
        seen = parse_answers(answers)
        if routers.is_gateway(answers):
            return routers.gateway_facts(self.id, answers)
        if routers.is_production_stack(seen.metrics):
            workers = routers.production_stack_workers(seen.metrics)
            name = "the router of vLLM's production stack"
            return routers.router_facts(self.id, name, workers, models=seen.models)
        if _dynamo(seen):
            return routers.router_facts(self.id, "Dynamo frontend", models=seen.models)
        context, unlike = read_context(seen)
        ranks, notes = rank_pools(seen.lines, answers)
        return EngineFacts(
            engine=self.id,
            version=_version(answers),
            model=_model(seen),
            revision=unknown("vLLM does not tell the model's revision"),
            context=context,
            pool=smallest_pool(ranks),
            input_limit=_input_limit(context),
            role=unknown("vLLM does not tell whether it prefills or decodes: declare it"),
            process=_process(seen),
            ranks=ranks,
            settings=_settings(seen),
            conditions=_conditions(seen, context),
            features=_features(seen),
            components=_components(seen),
            exposures=_exposures(answers),
            counters={name: total for name in COUNTERS if (total := seen.metrics.total(name)) is not None},
            contradictions=unlike,
            notes=(*notes, *_notes(seen)),
        )


def _dynamo(seen: ParsedAnswers) -> bool:
    """A frontend of Dynamo, before workers of any engine."""
    return routers.is_dynamo(seen.metrics) or routers.is_dynamo_listing(seen.models)


def _version(answers: Answers) -> Reading[str]:
    version = _json.mapping(_json.parsed(answers.get("/version"))).get("version")
    found = text(version, "GET /version version")
    return found if found.known else unknown(_json.why_not(answers, "/version"))


def _model(seen: ParsedAnswers) -> Reading[str]:
    for card in base_cards(seen):
        return text(card.get("id"), "GET /v1/models data[].id")
    for sample in seen.metrics.samples("vllm:num_requests_running"):
        return text(sample.labels.get("model_name"), "GET /metrics label model_name")
    return unknown(_json.why_not(seen.answers, "/v1/models"))


def _input_limit(context: Reading[int]) -> Reading[int]:
    """One output token must fit, so a prompt of ``max_model_len`` is the first one refused."""
    if not context.known or context.value is None:
        return unknown(f"max_model_len is unknown: {context.source}")
    return derived(context.value, f"{context.source} (one output token must fit)")


def _process(seen: ParsedAnswers) -> Reading[str]:
    """When the process, or else its counters, began; ``created`` of a model card is the time of
    the request."""
    for sample in seen.metrics.samples("process_start_time_seconds"):
        if sample.value:
            return read(f"{sample.value:.2f}", "GET /metrics process_start_time_seconds")
    for name in ("vllm:prompt_tokens_created", "vllm:num_preemptions_created"):
        began = sorted(f"{sample.value:.2f}" for sample in seen.metrics.samples(name) if sample.value)
        if began:
            return read(",".join(began)[:300], f"GET /metrics {name}")
    return unknown("no process_start_time_seconds and no *_created in /metrics")


def _settings(seen: ParsedAnswers) -> dict[str, Reading[Any]]:
    found: dict[str, Reading[Any]] = {}
    for card in base_cards(seen)[:1]:
        if "root" in card:
            found["model_path"] = _json.setting(card["root"], "GET /v1/models data[].root")
    for labels in seen.lines[:1]:
        for label, name in SETTINGS.items():
            if label in labels:
                value = None if labels[label] == "None" else labels[label]
                found[name] = _json.setting(value, f"GET /metrics {CACHE_INFO} label {label}")
        engines = len({line.get("engine", "") for line in seen.lines})
        found["dp_size"] = read(engines, f"GET /metrics {CACHE_INFO} engine labels")
    return found


def _conditions(seen: ParsedAnswers, context: Reading[int]) -> dict[str, bool]:
    """Answers to advisory conditions; what the answers do not tell is absent. A connector's
    metrics are registered only when one is configured; from 0.11.2, where the external cache has
    counters, NIXL without its metrics is not there. No metric excludes every other connector."""
    found: dict[str, bool] = {}
    if seen.metrics.any_with("vllm:nixl_"):
        found["nixl"] = found["pd_disaggregation"] = found["pd_or_kv_connector"] = True
    elif "vllm:external_prefix_cache_queries_total" in seen.metrics:
        found["nixl"] = False
    for prefix, names in (
        ("vllm:mooncake_", ("mooncake", "mooncake_connector", "pd_or_kv_connector")),
        ("lmcache:", ("lmcache", "pd_or_kv_connector")),
        ("vllm:kv_offload_", ("kv_offload", "pd_or_kv_connector")),
        ("vllm:lora_requests_info", ("lora",)),
    ):
        if seen.metrics.any_with(prefix):
            found.update(dict.fromkeys(names, True))
    if any(isinstance(card.get("parent"), str) for card in cards(seen)):
        found["lora"] = True
    caching = {line.get("enable_prefix_caching") for line in seen.lines}
    if caching in ({"True"}, {"False"}):
        found["prefix_caching"] = caching == {"True"}
    mixed = hybrid(seen.lines, context)
    if mixed is not None:
        found["hybrid_kv"] = found["hybrid_kv_hma"] = mixed
    return found


def _features(seen: ParsedAnswers) -> dict[str, bool]:
    found: dict[str, bool] = {}
    if seen.metrics.any_with("vllm:"):
        found.update({feature: name in seen.metrics for name, feature in METRIC_FEATURES.items()})
    if seen.lines:
        found["kv_cache_size_tokens"] = any("kv_cache_size_tokens" in line for line in seen.lines)  # >= 0.24
    return found


def _components(seen: ParsedAnswers) -> dict[str, str]:
    """Connectors whose metrics are there; vLLM does not tell their versions."""
    prefixes = {"nixl": "vllm:nixl_", "mooncake": "vllm:mooncake_", "lmcache": "lmcache:"}
    return {name: "" for name, prefix in prefixes.items() if seen.metrics.any_with(prefix)}


def _development_mode(answers: Answers) -> bool:
    return "vllm_config" in _json.mapping(_json.parsed(answers.get("/server_info")))


def _exposures(answers: Answers) -> tuple[Exposure, ...]:
    found = []
    if _development_mode(answers):
        found.append(
            Exposure(
                "development mode: configuration and acting routes (sleep, collective_rpc, "
                "reset_prefix_cache) are open to everyone who reaches this port",
                "GET /server_info",
                "fail",
            )
        )
    for path, answer in answers.items():
        if answer.exposed:
            names = sorted({name.rpartition(".")[2] for name in answer.exposed})
            found.append(Exposure(f"{', '.join(names)} in clear", f"GET {path}", "fail"))
    return tuple(found)


def _notes(seen: ParsedAnswers) -> list[str]:
    said = []
    expired = seen.metrics.total("vllm:nixl_num_kv_expired_reqs_total")
    late = seen.metrics.total("vllm:nixl_num_notifications_after_expiry_total")
    if expired:
        said.append(
            f"{expired:.0f} transfers expired on this node before they were read: a late reader may "
            "get another request's blocks without an error (vllm#52234); raise kv_lease_duration"
        )
    if late:
        said.append(
            f"{late:.0f} blocks were read after their lease had expired: their content was not theirs"
        )
    if _json.status(seen.answers, "/v1/models") == 401:
        said.append("GET /v1/models needs a key: without it the context stays unknown")
    return said


ADAPTER = VLLM()
