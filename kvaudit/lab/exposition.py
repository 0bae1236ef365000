"""Renders a node's counters as Prometheus text, by flavour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvaudit.lab.counters import BUCKETS, Histogram
from kvaudit.lab.node import Node


class Exposition:
    """Collects metrics with one set of labels and renders them."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._lines: list[str] = []

    def gauge(self, name: str, value: float, help_text: str = "", **labels: str) -> None:
        self._add(name, "gauge", help_text, [(name, labels, value)])

    def counter(self, name: str, value: float, help_text: str = "", **labels: str) -> None:
        self._add(name, "counter", help_text, [(name + "_total", labels, value)])

    def histogram(self, name: str, seen: Histogram, help_text: str = "") -> None:
        """A histogram with its buckets, sum and count."""
        rows: list[tuple[str, Mapping[str, str], float]] = [
            (name + "_bucket", {"le": str(edge)}, sum(seen.counts[: number + 1]))
            for number, edge in enumerate(BUCKETS)
        ]
        rows.append((name + "_bucket", {"le": "+Inf"}, seen.count))
        rows += [(name + "_count", {}, seen.count), (name + "_sum", {}, seen.total)]
        self._add(name, "histogram", help_text, rows)

    def _add(
        self, name: str, kind: str, help_text: str, rows: Sequence[tuple[str, Mapping[str, str], float]]
    ) -> None:
        self._lines += [f"# HELP {name} {help_text or name}", f"# TYPE {name} {kind}"]
        for full, extra, value in rows:
            labels = ",".join(f'{key}="{text}"' for key, text in sorted({**self._labels, **extra}.items()))
            self._lines.append(f"{full}{{{labels}}} {float(value)}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def sglang_metrics(node: Node) -> str:
    """``/metrics`` of an SGLang node (metrics_collector.py 0.5.22)."""
    out = Exposition(
        {
            "model_name": node.config.model,
            "engine_type": node.role,
            "tp_rank": "0",
            "pp_rank": "0",
            "dp_rank": "0",
        }
    )
    pool, counters, stages = node.pool, node.counters, node.stages
    used = pool.used_tokens - node.cache.cached_tokens
    out.gauge("sglang:max_total_num_tokens", pool.capacity, "Maximum total number of tokens in the KV pool")
    out.gauge("sglang:page_size", pool.page_size)
    out.gauge("sglang:num_pages", pool.pages)
    out.gauge("sglang:context_len", node.context)
    out.gauge("sglang:token_usage", used / max(pool.capacity, 1))
    out.gauge("sglang:num_used_tokens", used)
    out.gauge("sglang:kv_used_tokens", used)
    out.gauge("sglang:kv_available_tokens", pool.free_pages * pool.page_size)
    out.gauge("sglang:kv_evictable_tokens", node.cache.evictable_tokens)
    out.gauge("sglang:num_running_reqs", node.running)
    out.gauge("sglang:num_queue_reqs", node.waiting)
    out.gauge("sglang:cache_hit_rate", node.cache.hits / node.cache.queries if node.cache.queries else 0.0)
    out.gauge("sglang:num_prefill_bootstrap_queue_reqs", stages["prefill_bootstrap"])
    out.gauge("sglang:num_prefill_inflight_queue_reqs", stages["prefill_inflight"])
    out.gauge("sglang:num_decode_prealloc_queue_reqs", stages["decode_prealloc"])
    out.gauge("sglang:num_decode_transfer_queue_reqs", stages["decode_transfer"])
    out.counter("sglang:cached_tokens", counters.cached_tokens, cache_source="device")
    out.counter("sglang:prompt_tokens", counters.prompt_tokens)
    out.counter("sglang:generation_tokens", counters.generated_tokens)
    out.counter("sglang:evicted_tokens", node.cache.evicted)
    out.counter("sglang:num_requests", counters.requests)
    out.counter("sglang:num_aborted_requests", counters.aborted)
    out.counter("sglang:num_bootstrap_failed_reqs", counters.bootstrap_failed)
    out.counter("sglang:num_transfer_failed_reqs", counters.transfer_failed)
    out.histogram("sglang:time_to_first_token_seconds", counters.first_token)
    out.histogram("sglang:e2e_request_latency_seconds", counters.end_to_end)
    return (
        f"# HELP process_start_time_seconds start\n# TYPE process_start_time_seconds gauge\n"
        f"process_start_time_seconds {node.started}\n" + out.text()
    )
