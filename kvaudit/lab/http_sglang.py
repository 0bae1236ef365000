"""The SGLang face of a node: paths, bodies, error shapes and stream frames of releases 0.5.19-0.5.23.

Three things surprise clients and are kept: OpenAI errors have no outer ``error`` key, a streamed
request that the *scheduler* aborts is HTTP 200 with an error frame inside, and a disaggregated
worker refuses a request without a room.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kvaudit.lab import http_base as base
from kvaudit.lab import sglang_documents as documents
from kvaudit.lab.clock import now, wall
from kvaudit.lab.exposition import sglang_metrics
from kvaudit.lab.node import Node
from kvaudit.lab.request import Call, FinishAbort, FinishLength, FinishStop, Refused, encode, text_of
from kvaudit.lab.request_leg import Leg, start

GENERATE, COMPLETIONS, CHAT = "/generate", "/v1/completions", "/v1/chat/completions"


class SGLangFace:
    """HTTP of one node. ``tickets`` gives the writer tag of a request by its room."""

    def __init__(self, node: Node, tickets: Callable[[Call], int]) -> None:
        self.node, self.tickets, self.port = node, tickets, 0

    # --- asking the engine ---
    def parse(self, path: str, body: dict[str, Any]) -> Call:
        """A request body to a call; Refused (400) names what is wrong."""
        if path == GENERATE:
            sampling = body.get("sampling_params") or {}
            if not isinstance(sampling, dict):
                raise Refused("sampling_params must be an object")
            ids = body.get("input_ids")
            tokens = base.prompt_tokens(body.get("text") if ids is None else ids)
            wanted = base.number(sampling, "max_new_tokens", default=128)
        else:
            sampling = body
            if path == CHAT:
                ids = body.get("input_ids")
                tokens = base.prompt_tokens(ids) if ids else encode(base.chat_text(body.get("messages")))
                room = max(0, self.node.context - len(tokens))
                wanted = base.number(body, "max_completion_tokens", "max_tokens", default=room)
            else:
                tokens = base.prompt_tokens(body.get("prompt"))
                wanted = base.number(body, "max_tokens", default=16)
        salt = body.get("cache_salt") or body.get("extra_key") or ""
        room_number = body.get("bootstrap_room")
        if self.node.role != "unified" and not isinstance(room_number, int):
            raise Refused(
                "Disaggregated request received without bootstrap room id. Send it through the router."
            )
        call = Call(
            tokens,
            wanted,
            base.temperature(sampling),
            base.stops(sampling),
            str(salt),
            room_number,
            str(body.get("rid") or uuid.uuid4().hex),
        )
        call.ticket = self.tickets(call)
        return call

    async def answer(self, path: str, body: dict[str, Any]) -> Response:
        """Serve one generation request; streaming when the body says so."""
        streamed = body.get("stream") is True
        try:
            call = self.parse(path, body)
        except Refused as refused:
            return self.error(path, refused.message, refused.status)
        try:
            leg = start(self.node, call)
        except Refused as refused:
            if streamed and (path == GENERATE or self.node.faults.streams_every_refusal()):
                return base.EventStream(self._refused_frames(path, refused.message))
            return self.error(path, refused.message, refused.status)
        if streamed:
            frames = self._generate_frames(leg) if path == GENERATE else self._openai_frames(path, body, leg)
            return base.EventStream(frames, leg.cancel)
        async with leg:
            await leg.ended()
        ended = leg.request.finished_reason
        if isinstance(ended, FinishAbort):
            return self.error(path, ended.message, ended.status)
        if path == GENERATE:
            return base.json_response(self._generate_body(leg))
        return base.json_response(self._openai_body(path, leg))

    def error(self, path: str, message: str, status: int) -> Response:
        if path == GENERATE:
            return base.json_response({"error": {"message": message}}, status)
        kind = "BadRequest" if status == 400 else "InternalServerError"
        document = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        return base.json_response(document, status)

    # --- /generate ---
    def _meta(self, leg: Leg) -> dict[str, Any]:
        request = leg.request
        return {
            "id": request.call.rid,
            "finish_reason": _native_finish(request.finished_reason),
            "prompt_tokens": request.prompt_tokens,
            "weight_version": "default",
            "total_retractions": 0,
            "completion_tokens": len(request.output_ids),
            "cached_tokens": request.cached_tokens,
            "dp_rank": None,
            "e2e_latency": round(now() - request.received, 6),
        }

    def _generate_body(self, leg: Leg) -> dict[str, Any]:
        ids = leg.request.output_ids
        return {"text": text_of(ids), "output_ids": ids, "meta_info": self._meta(leg)}

    async def _generate_frames(self, leg: Leg) -> AsyncIterator[bytes]:
        async with leg:
            async for _ in leg.request.progress():
                yield base.sse(self._generate_body(leg))
            yield base.DONE

    async def _refused_frames(self, path: str, message: str) -> AsyncIterator[bytes]:
        if path == GENERATE:
            error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
        else:
            error = {"object": "error", "message": message, "type": "BAD_REQUEST", "param": None, "code": 400}
        yield base.sse({"error": error})
        yield base.DONE

    # --- OpenAI ---
    def _usage(self, leg: Leg) -> dict[str, Any]:
        request = leg.request
        made = len(request.output_ids)
        details = {"cached_tokens": request.cached_tokens} if self.node.config.cache_report else None
        return {
            "prompt_tokens": request.prompt_tokens,
            "total_tokens": request.prompt_tokens + made,
            "completion_tokens": made,
            "prompt_tokens_details": details,
            "reasoning_tokens": 0,
        }

    def _openai_body(self, path: str, leg: Leg) -> dict[str, Any]:
        request = leg.request
        text = text_of(request.output_ids)
        choice: dict[str, Any] = {"index": 0}
        if path == CHAT:
            choice["message"] = {
                "role": "assistant",
                "content": text,
                "reasoning_content": None,
                "tool_calls": None,
            }
        else:
            choice["text"] = text
        choice |= {"logprobs": None, **_openai_finish(request.finished_reason)}
        return {
            **self._head(path, leg, "chat.completion" if path == CHAT else "text_completion"),
            "choices": [choice],
            "usage": self._usage(leg),
            "metadata": {"weight_version": "default"},
        }

    def _head(self, path: str, leg: Leg, kind: str) -> dict[str, Any]:
        return {
            "id": leg.request.call.rid,
            "object": kind,
            "created": int(wall()),
            "model": self.node.config.model,
        }

    async def _openai_frames(self, path: str, body: dict[str, Any], leg: Leg) -> AsyncIterator[bytes]:
        head = self._head(path, leg, "chat.completion.chunk" if path == CHAT else "text_completion")

        def frame(content: dict[str, Any], finish: dict[str, Any]) -> bytes:
            choice = {"index": 0, **content, "logprobs": None, **finish}
            return base.sse({**head, "choices": [choice], "usage": None})

        open_end = {"finish_reason": None, "matched_stop": None}
        async with leg:
            if path == CHAT:
                yield frame(
                    {"delta": {"role": "assistant", "content": "", "reasoning_content": None}}, open_end
                )
            async for piece in leg.pieces():
                content = {"delta": {"content": piece}} if path == CHAT else {"text": piece}
                yield frame(content, open_end)
            ended = leg.request.finished_reason
            if isinstance(ended, FinishAbort):
                kind = "BAD_REQUEST" if ended.status == 400 else "INTERNAL_SERVER_ERROR"
                error = {
                    "object": "error",
                    "message": ended.message,
                    "type": kind,
                    "param": None,
                    "code": ended.status,
                }
                yield base.sse({"error": error})
            else:
                empty: dict[str, Any] = {"delta": {}} if path == CHAT else {"text": ""}
                yield frame(empty, _openai_finish(ended))
                options = body.get("stream_options")
                if isinstance(options, dict) and options.get("include_usage"):
                    yield base.sse({**head, "choices": [], "usage": self._usage(leg)})
            yield base.DONE

    # --- the application ---
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

    def document(self, path: str) -> Any:
        """The body of a discovery path, before disclosure faults."""
        if path in ("/server_info", "/get_server_info"):
            return documents.server_info(self.node, self.port)
        if path in ("/model_info", "/get_model_info"):
            return documents.model_info(self.node)
        return documents.models(self.node)

    def exposition(self) -> str:
        return self.node.faults.metrics(sglang_metrics(self.node))

    async def _metrics(self, http: HTTPRequest) -> Response:
        return Response(self.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _tokenize(self, http: HTTPRequest) -> Response:
        try:
            return self.tokenize(await base.body_of(http))
        except Refused as refused:
            return self.error(COMPLETIONS, refused.message, refused.status)

    def tokenize(self, body: dict[str, Any]) -> Response:
        """``/tokenize``: ids, count and the tokenizer's own limit (not the effective context)."""
        messages = body.get("messages")
        tokens = encode(base.chat_text(messages)) if messages else base.prompt_tokens(body.get("prompt"))
        document = {"tokens": tokens.tolist(), "count": len(tokens), "max_model_len": self.node.context}
        return base.json_response(document)

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


def _native_finish(ended: object) -> dict[str, Any] | None:
    if isinstance(ended, FinishLength):
        return {"type": "length", "length": ended.length}
    if isinstance(ended, FinishStop):
        return {"type": "stop", "matched": ended.matched}
    if isinstance(ended, FinishAbort):
        return {
            "type": "abort",
            "message": ended.message,
            "status_code": ended.status,
            "err_type": ended.err_type,
        }
    return None


def _openai_finish(ended: object) -> dict[str, Any]:
    if isinstance(ended, FinishStop):
        return {"finish_reason": "stop", "matched_stop": ended.matched}
    return {"finish_reason": "length" if isinstance(ended, FinishLength) else "abort", "matched_stop": None}


def _plain(text: str) -> Callable[[HTTPRequest], Awaitable[Response]]:
    async def endpoint(http: HTTPRequest) -> Response:
        return Response(text, media_type=None)

    return endpoint
