"""Routers are not nodes: recognise them, list the workers they name, never take their answers for
a worker's own.

sglang-router, sgl-model-gateway and smg proxy ``/get_server_info`` to some worker without a sign
(smg ``pd_router.rs``); they answer ``/readiness`` and own ``/workers``. The experimental Rust
router of SGLang has ``/readyz`` instead and no ``/workers``. Dynamo's frontend shows
``dynamo_frontend_*`` metrics, TensorRT-LLM's disaggregated server ``/cluster_info``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kvaudit.auditor.engines import _json, _prometheus
from kvaudit.auditor.engines.answers import Answers, Step
from kvaudit.auditor.readings import EngineFacts, Reading, Worker, text, unknown

STEPS = (
    Step("/readiness", identifies=True),
    Step("/workers", identifies=True),
    Step("/readyz", unless="/readiness", identifies=True),
)
"""What an adapter asks to tell a router from a node; all three are 404 on every engine."""

_STACK_METRICS = ("vllm:healthy_pods_total", "vllm:current_qps", "router_cpu_usage_percent")

ROLES = {"prefill": "prefill", "decode": "decode", "regular": "unified"}
_RANK = re.compile(r"@\d+$")
_ONLY_WORKERS_KNOW = "a router answers for its workers; give kvaudit the workers' own addresses"


def is_gateway(answers: Answers) -> bool:
    """Whether these are answers of sglang-router, sgl-model-gateway, smg or the experimental router.

    ``/readiness`` is open and answers 503 while no worker is healthy; ``/workers`` may want the
    admin key. A node, or a proxy that refuses every path it does not know, has neither.
    """
    if _ready(answers, "/readiness") or _ready(answers, "/readyz"):
        return True
    if "workers" in _json.mapping(_json.parsed(answers.get("/workers"))):
        return True
    return _json.status(answers, "/readiness") == 503 and _json.status(answers, "/workers") in (401, 403)


def _ready(answers: Answers, path: str) -> bool:
    """200 with anything but a page, and not just what this server says to every path."""
    if not _json.ok(answers, path) or answers[path].body.lstrip().startswith(b"<"):
        return False
    return not (_json.ok(answers, "/workers") and answers["/workers"].body == answers[path].body)


def is_production_stack(metrics: _prometheus.Metrics) -> bool:
    """The router of vLLM's production stack: it owns ``vllm:`` metrics too, a series for each ``server``, and says its
    own version at ``/version`` (reach.md 1)."""
    return any(name in metrics for name in _STACK_METRICS) or bool(production_stack_workers(metrics))


def production_stack_workers(metrics: _prometheus.Metrics) -> tuple[Worker, ...]:
    """The workers that its metrics name."""
    urls = {
        sample.labels.get("server", "")
        for name in metrics.lines
        if name.startswith("vllm:")
        for sample in metrics.samples(name)
    }
    return tuple(Worker(url) for url in sorted(urls) if url.startswith(("http://", "https://")))


def is_dynamo(metrics: _prometheus.Metrics) -> bool:
    return metrics.any_with("dynamo_frontend_")


def is_dynamo_listing(models: Any) -> bool:
    """Dynamo's ``/v1/models``: owned by nvidia, and ``object`` is "object" (old) or a
    ``context_window`` is told (new)."""
    cards = [_json.mapping(card) for card in _json.sequence(_json.mapping(models).get("data"))]
    return any(
        card.get("owned_by") == "nvidia" and (card.get("object") == "object" or "context_window" in card)
        for card in cards
    )


def router_facts(
    engine: str, name: str, workers: Iterable[Worker] = (), *, models: Any = None, notes: Iterable[str] = ()
) -> EngineFacts:
    """Facts of a router: kind and workers; every reading of a node stays unknown, and says why."""
    nothing: Reading[Any] = unknown(f"{name}: {_ONLY_WORKERS_KNOW}")
    listed = tuple(workers)
    said = f"this is a router ({name}), not a node"
    said += f"; it lists {len(listed)} workers" if listed else f"; {_ONLY_WORKERS_KNOW}"
    return EngineFacts(
        engine=engine,
        kind="router",
        version=nothing,
        model=model_name(models),
        revision=nothing,
        context=nothing,
        pool=nothing,
        input_limit=nothing,
        role=nothing,
        process=nothing,
        workers=listed,
        notes=(said, *notes),
    )


def gateway_facts(engine: str, answers: Answers) -> EngineFacts:
    """Facts of an SGLang-style gateway; its proxied server information is left aside."""
    notes = []
    if _json.status(answers, "/workers") in (401, 403):
        notes.append("GET /workers needs the router's admin key; with it kvaudit can list the workers")
    if _json.ok(answers, "/server_info") or _json.ok(answers, "/get_server_info"):
        notes.append("its server information is a worker's, proxied without a sign; it was not used")
    name = "experimental sgl-router" if _json.ok(answers, "/readyz") else "sglang-router, smg or vllm-router"
    workers = gateway_workers(_json.parsed(answers.get("/workers")))
    models = _json.parsed(answers.get("/v1/models"))
    return router_facts(engine, name, workers, models=models, notes=notes)


def gateway_workers(listing: Any) -> tuple[Worker, ...]:
    """Workers of ``GET /workers``, one per address: the ranks of one address (``@1``,
    ``dp_base_url``) are one process. A ``worker_type`` that is no role reads as ""."""
    found: dict[str, Worker] = {}
    for item in _json.sequence(_json.mapping(listing).get("workers")):
        worker = _json.mapping(item)
        url = text(worker.get("dp_base_url"), "dp_base_url").value or text(worker.get("url"), "url").value
        if not url or not url.startswith(("http://", "https://", "grpc://")):
            continue
        url = _RANK.sub("", url)
        kind = worker.get("worker_type")
        role = ROLES.get(kind, "") if isinstance(kind, str) else ""
        found.setdefault(url, Worker(url, role, text(worker.get("model_id"), "model_id").value or ""))
    return tuple(found.values())


def model_name(models: Any) -> Reading[str]:
    """The first model of a ``/v1/models`` answer."""
    for card in _json.sequence(_json.mapping(models).get("data")):
        return text(_json.mapping(card).get("id"), "GET /v1/models data[0].id")
    return unknown("GET /v1/models names no model")
