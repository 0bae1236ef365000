"""Names what a target offers and no check asks, so that no sentence is taken for all of its routes."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit.auditor.prober.hearing import json_or_none
from kvaudit.auditor.prober.wire import Wire
from kvaudit.auditor.transport import Limits, TransportError

OPENAPI = "/openapi.json"
SECONDS = 10.0
ROUTES = {
    "responses": ("/v1/responses",),
    "messages": ("/v1/messages",),
    "embeddings": ("/v1/embeddings", "/embeddings", "/encode"),
    "rerank": ("/v1/rerank", "/v2/rerank", "/rerank"),
}
OPTIONS = ("n > 1", "echo", "prompt_logprobs")
"""Of completions: their answers come another way out of the engine."""


async def untested(nodes: Sequence[Wire]) -> tuple[str, ...]:
    """Routes that any node lists, all of them where one lists none, and the options."""
    listed = [await _routes(wire) for wire in nodes]
    if not listed or None in listed:
        return (*ROUTES, *OPTIONS)
    offered = frozenset[str]().union(*(found for found in listed if found is not None))
    return (*(name for name, paths in ROUTES.items() if offered.intersection(paths)), *OPTIONS)


async def _routes(wire: Wire) -> frozenset[str] | None:
    """The paths that a node lists; None when it lists none."""
    try:
        answer = await wire.request("GET", OPENAPI, limits=Limits(total=SECONDS))
    except (TransportError, ValueError):
        return None
    document = json_or_none(answer.body) if answer.status == 200 else None
    paths = document.get("paths") if isinstance(document, dict) else None
    return frozenset(str(path) for path in paths) if isinstance(paths, dict) and paths else None
