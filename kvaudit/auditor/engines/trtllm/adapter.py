"""TensorRT-LLM, 1.1 to 1.4: ``trtllm-serve`` and the server of ``trtllm-serve disaggregated``.

Sources: ``tensorrt_llm/serve/openai_server.py``, ``metrics/collector.py`` and recorded answers of
1.3.0rc29. Gauges that were never set read 0.0 and switched-off ones are absent: both are unknown.
``GET /metrics`` is a JSON list that each call empties, so it comes last and only where the
Prometheus endpoint is switched off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kvaudit.auditor.engines import _json, _prometheus, routers
from kvaudit.auditor.engines.answers import Answers, Step
from kvaudit.auditor.engines.trtllm import ENGINE
from kvaudit.auditor.readings import (
    EngineFacts,
    RankPool,
    Reading,
    declared,
    derived,
    largest,
    read,
    smallest_pool,
    text,
    tokens,
    unknown,
)

PROMETHEUS, DRAINED = "/prometheus/metrics", "/metrics"

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "trtllm_model_config_info": {
        "model": "model_path",
        "dtype": "dtype",
        "quantization": "quantization",
        "engine_type": "engine_type",
        "gpu_type": "gpu_type",
    },
    "trtllm_parallel_config_info": {
        "tensor_parallel_size": "tp_size",
        "pipeline_parallel_size": "pp_size",
        "context_parallel_size": "cp_size",
        "gpu_count": "gpu_count",
    },
    "trtllm_kv_cache_config_info": {
        "cache_dtype": "kv_cache_dtype",
        "enable_block_reuse": "enable_block_reuse",
        "enable_partial_reuse": "enable_partial_reuse",
        "free_gpu_memory_fraction": "free_gpu_memory_fraction",
    },
}
"""Info metric -> label -> setting, in the names that all engines share where there is one."""

COUNTERS = (
    "trtllm_kv_cache_used_blocks",
    "trtllm_kv_cache_reused_blocks_total",
    "trtllm_kv_cache_missed_blocks_total",
    "trtllm_prompt_cached_tokens_total",
)

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect

_BLOCKS, _PER_BLOCK = "trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"


class TensorRTLLM:
    id: ClassVar[str] = ENGINE.id
    title: ClassVar[str] = ENGINE.title
    plan: ClassVar[Sequence[Step]] = (
        Step("/version", identifies=True),
        Step("/v1/models", identifies=True),
        Step("/server_info", identifies=True),
        Step("/cluster_info", unless="/v1/models", identifies=True),
        Step(PROMETHEUS, identifies=True, process=True),
        Step(DRAINED, unless=PROMETHEUS, destructive=True),
    )
    gets: ClassVar[frozenset[str]] = frozenset({"/health", "/openapi.json"})
    posts: ClassVar[frozenset[str]] = frozenset(
        {"/v1/completions", "/v1/chat/completions", "/_internal/tokenize"}
    )

    def dialect(self) -> Dialect:
        """How active checks ask it; imported only then."""
        from kvaudit.auditor.engines.trtllm.dialect import TRTLLMDialect

        return TRTLLMDialect()

    def recognises(self, answers: Answers) -> bool:
        models = _json.mapping(_json.parsed(answers.get("/v1/models")))
        cards = (_json.mapping(card) for card in _json.sequence(models.get("data")))
        if any(card.get("owned_by") == "tensorrt_llm" for card in cards):
            return True
        if "disaggregated_params" in _json.mapping(_json.parsed(answers.get("/server_info"))):
            return True
        return _prometheus.parse(answers.get(PROMETHEUS)).any_with("trtllm_") or _disaggregated(answers)

    def facts(self, answers: Answers) -> EngineFacts:
        if _disaggregated(answers):
            note = "worker addresses are not read from /cluster_info: take them from the deployment's YAML"
            return routers.router_facts(self.id, "TensorRT-LLM disaggregated server", notes=(note,))
        metrics = _prometheus.parse(answers.get(PROMETHEUS))
        if routers.is_dynamo(metrics):
            return routers.router_facts(self.id, "Dynamo frontend")
        ranks, notes = _rank_pools(metrics, answers)
        pool, (context, unlike) = smallest_pool(ranks), _context(metrics, answers)
        return EngineFacts(
            engine=self.id,
            version=_version(answers),
            model=_model(answers),
            revision=unknown("TensorRT-LLM does not tell the model's revision"),
            context=context,
            pool=pool,
            input_limit=unknown("TensorRT-LLM names its limit only when it refuses a prompt"),
            role=unknown(
                "a TensorRT-LLM worker does not tell whether it is context or generation: declare it"
            ),
            process=_process(metrics),
            ranks=ranks,
            settings=_settings(metrics, answers),
            conditions=_conditions(metrics),
            counters={name: total for name in COUNTERS if (total := metrics.total(name)) is not None},
            contradictions=unlike,
            notes=(*notes, *_context_notes(context, pool)),
        )


def _disaggregated(answers: Answers) -> bool:
    """The disaggregated server has ``/cluster_info`` and no ``/v1/models``."""
    info = _json.parsed(answers.get("/cluster_info"))
    version = _json.mapping(_json.parsed(answers.get("/version")))
    return isinstance(info, dict) and "version" in version and not _json.ok(answers, "/v1/models")


def _version(answers: Answers) -> Reading[str]:
    version = _json.mapping(_json.parsed(answers.get("/version"))).get("version")
    found = text(version, "GET /version version")
    return found if found.known else unknown(_json.why_not(answers, "/version"))


def _model(answers: Answers) -> Reading[str]:
    """The model's name; from a local directory it is only the directory's last part."""
    named = routers.model_name(_json.parsed(answers.get("/v1/models")))
    return named if named.known else unknown(_json.why_not(answers, "/v1/models"))


def _context(metrics: _prometheus.Metrics, answers: Answers) -> tuple[Reading[int], tuple[str, ...]]:
    """The label holds the configured argument, not the limit that the engine ended up with."""
    lengths = [
        tokens(sample.labels.get("max_model_len"), f"GET {PROMETHEUS} label max_model_len")
        for sample in metrics.samples("trtllm_model_config_info")
    ]
    longest, unlike = largest(lengths)
    if longest is None:
        why = lengths[0].source if lengths else _json.why_not(answers, PROMETHEUS)
        return unknown(f"{why}: declare the context, or start trtllm-serve with --max_seq_len"), ()
    return declared(longest.value or 0, f"{longest.source} (the configured argument)"), unlike


def _context_notes(context: Reading[int], pool: Reading[int]) -> list[str]:
    if not context.known:
        return []
    said = ["the context is the configured argument, not the effective limit: low confidence"]
    if pool.known and (pool.value or 0) < (context.value or 0):
        said.append(
            "KV manager V1 reduces its limit to the pool without a word to clients; V2 is not known to"
        )
    return said


def _rank_pools(metrics: _prometheus.Metrics, answers: Answers) -> tuple[tuple[RankPool, ...], list[str]]:
    """One pool per ``pid`` that exports the gauges; else the newest statistics of ``/metrics``."""
    blocks, sizes = _by_pid(metrics, _BLOCKS), _by_pid(metrics, _PER_BLOCK)
    if blocks or sizes:
        ranks = [
            RankPool(
                pid, _product(blocks.get(pid), sizes.get(pid), f"GET {PROMETHEUS} {_BLOCKS} x {_PER_BLOCK}")
            )
            for pid in sorted({*blocks, *sizes})
        ]
        return tuple(ranks), []
    if metrics:
        why = (
            f"GET {PROMETHEUS} has no {_BLOCKS}: iteration statistics are off (enable_iter_perf_stats), "
            "or no request has run since the start"
        )
        return (RankPool("0", unknown(why)),), []
    return _from_statistics(answers)


def _by_pid(metrics: _prometheus.Metrics, name: str) -> dict[str, Reading[int]]:
    """The gauge of each process; the smallest where one has several series, unknown at 0.0."""
    found: dict[str, list[Reading[int]]] = {}
    for sample in metrics.samples(name):
        pid = _json.label(sample.labels.get("pid", "0"), 20)
        found.setdefault(pid, []).append(tokens(sample.value, f"GET {PROMETHEUS} {name}"))
    return {pid: smallest_pool(RankPool("", value) for value in values) for pid, values in found.items()}


def _product(blocks: Reading[int] | None, size: Reading[int] | None, source: str) -> Reading[int]:
    if blocks is None or size is None:
        return unknown(f"{source}: one of the two is absent")
    if blocks.value is None or size.value is None:
        return unknown(size.source if blocks.known else blocks.source)
    counted = tokens(blocks.value * size.value, source)
    return counted if counted.value is None else derived(counted.value, source)


def _from_statistics(answers: Answers) -> tuple[tuple[RankPool, ...], list[str]]:
    asked = answers.get(DRAINED)
    if asked is None:
        return (RankPool("0", unknown(f"no pool: {_json.why_not(answers, PROMETHEUS, DRAINED)}")),), []
    notes = [f"GET {DRAINED} was read once: it hands its queued statistics to whoever asks first"]
    found = []
    several = False
    for item in _json.sequence(_json.parsed(asked)):
        stats = _json.mapping(_json.mapping(item).get("kvCacheStats"))
        several = (
            several or len(_json.mapping(_json.mapping(item).get("kvCacheIterationStatsByPoolGroup"))) > 1
        )
        if stats:
            source = f"GET {DRAINED} kvCacheStats maxNumBlocks x tokensPerBlock"
            found.append(
                _product(
                    tokens(stats.get("maxNumBlocks"), f"GET {DRAINED} maxNumBlocks"),
                    tokens(stats.get("tokensPerBlock"), f"GET {DRAINED} tokensPerBlock"),
                    source,
                )
            )
    if not found:
        why = "its list is empty: no request has run, statistics are off or another reader was first"
        asked_for = why if asked.status == 200 else _json.why_not(answers, DRAINED)
        return (RankPool("0", unknown(f"GET {DRAINED}: {asked_for}")),), notes
    if several:
        notes.append("the model has several KV pools: one number for all is of low confidence")
    return (RankPool("0", smallest_pool(RankPool("", pool) for pool in found)),), notes


def _process(metrics: _prometheus.Metrics) -> Reading[str]:
    for sample in metrics.samples("process_start_time_seconds"):
        if sample.value:
            return read(f"{sample.value:.2f}", f"GET {PROMETHEUS} process_start_time_seconds")
    named = metrics.samples("trtllm_model_config_info")
    pids = sorted({_json.label(sample.labels.get("pid", ""), 20) for sample in named} - {""})
    if pids:
        return read(f"pid {','.join(pids)}"[:300], f"GET {PROMETHEUS} label pid")
    return unknown(f"no process identity in {PROMETHEUS}")


def _settings(metrics: _prometheus.Metrics, answers: Answers) -> dict[str, Reading[Any]]:
    found: dict[str, Reading[Any]] = {}
    for metric, labels in SETTINGS.items():
        for sample in metrics.samples(metric)[:1]:
            for label, name in labels.items():
                if label in sample.labels:
                    value = None if sample.labels[label] == "None" else sample.labels[label]
                    found[name] = _json.setting(value, f"GET {PROMETHEUS} {metric} label {label}")
    info = _json.mapping(_json.parsed(answers.get("/server_info")))
    for field, name in (
        ("max_batch_size", "max_batch_size"),
        ("kv_cache_hash_algo", "kv_cache_hash_algo"),
        ("tokens_per_block", "page_size"),
    ):
        if field in info:
            found[name] = _json.setting(info[field], f"GET /server_info {field}")
    sizes = _by_pid(metrics, _PER_BLOCK)
    if "page_size" not in found and sizes:
        found["page_size"] = min(sizes.values(), key=lambda size: size.value or 0)
    return found


def _conditions(metrics: _prometheus.Metrics) -> dict[str, bool]:
    found: dict[str, bool] = {}
    reuse = {
        sample.labels.get("enable_block_reuse") for sample in metrics.samples("trtllm_kv_cache_config_info")
    }
    if reuse in ({"True"}, {"False"}):
        found["block_reuse"] = found["prefix_caching"] = reuse == {"True"}
    return found


ADAPTER = TensorRTLLM()
