"""The HTTP application of a node that speaks as SGLang: its paths, and whose key opens them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kvaudit.lab import http_base as base
from kvaudit.lab import sglang_documents as documents
from kvaudit.lab.request import Refused, text_of
from kvaudit.lab.sglang_answers import CHAT, COMPLETIONS, GENERATE, SGLangAnswers


class SGLangApi(SGLangAnswers):
    """HTTP of one node."""

    def application(self) -> ASGIApp:
        """All paths of the node's release, behind its key."""
        node, version = self.node, self.node.config.version
        routes = [
            Route("/health", _plain("")),
            Route("/health_generate", _plain("")),
            *[
                self._document(path)
                for path in (
                    "/server_info",
                    "/get_server_info",
                    "/model_info",
                    "/get_model_info",
                    "/v1/models",
                )
            ],
            self._document("/v1/loads", lambda: documents.loads(node)),
            Route("/metrics", self._metrics),
            *[Route(path, self._tokenize, methods=["POST"]) for path in ("/tokenize", "/v1/tokenize")],
            *[Route(path, self._detokenize, methods=["POST"]) for path in ("/detokenize", "/v1/detokenize")],
            Route("/flush_cache", self._flush, methods=["GET", "POST"]),
            *[Route(path, self._generation, methods=["POST"]) for path in (GENERATE, COMPLETIONS, CHAT)],
        ]
        if documents.at_least(version, "0.5.20"):
            routes.append(Route("/ready", _plain("")))
        if not documents.at_least(version, "0.5.21"):
            routes.append(self._document("/weight_version", lambda: {"weight_version": "default"}))
            routes.append(self._document("/get_load", lambda: documents.loads(node)["loads"]))
        paths = sorted({route.path for route in routes})
        routes.append(self._document("/openapi.json", lambda: base.openapi("SGLang", paths)))
        application = Starlette(routes=routes, exception_handlers=base.FASTAPI_ERRORS)
        return base.LabHeader(node.faults.wrap(base.BearerKey(application, self._key_for)))

    def _key_for(self, path: str) -> str:
        """Health, metrics and readiness are always open; acting routes want the admin key if set."""
        if path.startswith(("/health", "/metrics", "/ready")):
            return ""
        config = self.node.config
        if path == "/flush_cache":
            return config.admin_key or config.node_key
        return config.node_key

    def _document(self, path: str, make: Callable[[], Any] | None = None) -> Route:
        async def endpoint(http: HTTPRequest) -> Response:
            body = make() if make is not None else self.document(path)
            return base.json_response(self.node.faults.disclose(path, body))

        return Route(path, endpoint)

    async def _metrics(self, http: HTTPRequest) -> Response:
        return Response(self.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _tokenize(self, http: HTTPRequest) -> Response:
        try:
            return self.tokenize(await base.body_of(http))
        except Refused as refused:
            return self.error(COMPLETIONS, refused.message, refused.status)

    async def _detokenize(self, http: HTTPRequest) -> Response:
        try:
            tokens = base.prompt_tokens((await base.body_of(http)).get("tokens"))
        except Refused as refused:
            return self.error(COMPLETIONS, refused.message, refused.status)
        return base.json_response({"text": text_of(tokens.tolist())})

    async def _flush(self, http: HTTPRequest) -> Response:
        if self.node.running or self.node.waiting:
            return PlainTextResponse("Flush cache failed: requests are running.\n", 400)
        self.node.cache.flush()
        return PlainTextResponse("Cache flushed.\n")

    async def _generation(self, http: HTTPRequest) -> Response:
        try:
            body = await base.body_of(http)
        except Refused as refused:
            return self.error(http.url.path, refused.message, refused.status)
        answer = await base.unless_gone(http.receive, self.answer(http.url.path, body))
        return answer or Response(status_code=499)


def _plain(text: str) -> Callable[[HTTPRequest], Awaitable[Response]]:
    async def endpoint(http: HTTPRequest) -> Response:
        return Response(text, media_type=None)

    return endpoint
