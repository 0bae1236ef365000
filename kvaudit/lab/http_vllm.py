"""The HTTP application of a node that speaks as vLLM: its paths, and whose key opens them.

Kept as it is: a key guards only ``/v1``, so ``/metrics``, ``/version``, ``/tokenize`` and ``/invocations``, which
completes, stay open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kvaudit.lab import http_base as base
from kvaudit.lab.request import Refused, text_of
from kvaudit.lab.vllm_answers import CHAT, COMPLETIONS, INVOCATIONS, VLLMAnswers


class VLLMApi(VLLMAnswers):
    """HTTP of one node."""

    def application(self) -> ASGIApp:
        """All paths of the node, behind its key where vLLM looks at keys."""
        routes = [
            Route("/health", _empty),
            Route("/ping", _empty, methods=["GET", "POST"]),
            self._document("/version", lambda: {"version": self.node.config.version}),
            self._document("/load", lambda: {"server_load": 0}),
            self._document("/v1/models", lambda: self.document("/v1/models")),
            self._document("/kv_event_sources", dict),
            Route("/metrics", self._metrics),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/detokenize", self._detokenize, methods=["POST"]),
            *[Route(path, self._generation, methods=["POST"]) for path in (COMPLETIONS, CHAT, INVOCATIONS)],
        ]
        paths = sorted({route.path for route in routes})
        routes.append(self._document("/openapi.json", lambda: base.openapi("FastAPI", paths)))
        application = Starlette(routes=routes, exception_handlers=base.FASTAPI_ERRORS)
        guarded = base.BearerKey(base.Header(application, b"vary", b"Origin"), self._key_for)
        return base.LabHeader(self.node.faults.wrap(guarded))

    def _key_for(self, path: str) -> str:
        """Only ``/v1``, ``/v2``, ``/inference`` and ``/cohere`` are guarded (authenticate.py, 0.32)."""
        return self.node.config.node_key if path.startswith(("/v1", "/v2", "/inference", "/cohere")) else ""

    def _document(self, path: str, make: Callable[[], Any]) -> Route:
        async def endpoint(http: HTTPRequest) -> Response:
            return base.json_response(self.node.faults.disclose(path, make()))

        return Route(path, endpoint)

    async def _metrics(self, http: HTTPRequest) -> Response:
        return Response(self.exposition(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def _tokenize(self, http: HTTPRequest) -> Response:
        try:
            return self.tokenize(await base.body_of(http))
        except Refused as refused:
            return self.error("/tokenize", refused.message, refused.status, refused.param)

    async def _detokenize(self, http: HTTPRequest) -> Response:
        try:
            tokens = base.prompt_tokens((await base.body_of(http)).get("tokens"))
        except Refused as refused:
            return self.error("/detokenize", refused.message, refused.status, refused.param)
        return base.json_response({"prompt": text_of(tokens.tolist())})

    async def _generation(self, http: HTTPRequest) -> Response:
        try:
            body = await base.body_of(http)
        except Refused as refused:
            return self.error(http.url.path, refused.message, refused.status)
        body.pop("bootstrap_room", None)
        answer = await base.unless_gone(http.receive, self.answer(http.url.path, body))
        return answer or Response(status_code=499)


async def _empty(http: HTTPRequest) -> Response:
    return Response(b"")
