"""The SGLang API of a node: bodies, error shapes and stream frames of releases 0.5.19-0.5.23.

Three things surprise clients and are kept: OpenAI errors have no outer ``error`` key, a streamed
request that the *scheduler* aborts is HTTP 200 with an error frame inside, and a disaggregated
worker refuses a request without a room.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response

from kvaudit.lab import http_base as base
from kvaudit.lab import sglang_documents as documents
from kvaudit.lab.clock import now, wall
from kvaudit.lab.exposition import sglang_metrics
from kvaudit.lab.node import Node
from kvaudit.lab.request import Call, FinishAbort, FinishLength, FinishStop, Refused, encode, text_of
from kvaudit.lab.request_leg import RequestLeg, start

GENERATE, COMPLETIONS, CHAT = "/generate", "/v1/completions", "/v1/chat/completions"


class SGLangAnswers:
    """What a node answers to a path and a body. ``tickets`` gives the writer tag of a request by its room."""

    def __init__(self, node: Node, tickets: Callable[[Call], int]) -> None:
        self.node, self.tickets, self.port = node, tickets, 0

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
        message = self.node.faults.error_text(message)
        if path == GENERATE:
            return base.json_response({"error": {"message": message}}, status)
        kind = "BadRequest" if status == 400 else "InternalServerError"
        document = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        return base.json_response(document, status)

    def _meta(self, leg: RequestLeg) -> dict[str, Any]:
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

    def _generate_body(self, leg: RequestLeg) -> dict[str, Any]:
        ids = leg.request.output_ids
        return {"text": text_of(ids), "output_ids": ids, "meta_info": self._meta(leg)}

    async def _generate_frames(self, leg: RequestLeg) -> AsyncIterator[bytes]:
        async with leg:
            async for _ in leg.request.progress():
                yield base.sse(self._generate_body(leg))
            yield base.DONE

    async def _refused_frames(self, path: str, message: str) -> AsyncIterator[bytes]:
        message = self.node.faults.error_text(message)
        if path == GENERATE:
            error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
        else:
            error = {"object": "error", "message": message, "type": "BAD_REQUEST", "param": None, "code": 400}
        yield base.sse({"error": error})
        yield base.DONE

    def _usage(self, leg: RequestLeg) -> dict[str, Any]:
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

    def _openai_body(self, path: str, leg: RequestLeg) -> dict[str, Any]:
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
        choice |= {
            "logprobs": self.node.faults.logprobs(request.call),
            **_openai_finish(request.finished_reason),
        }
        return {
            **self._head(path, leg, "chat.completion" if path == CHAT else "text_completion"),
            "choices": [choice],
            "usage": self._usage(leg),
            "metadata": {"weight_version": "default"},
        }

    def _head(self, path: str, leg: RequestLeg, kind: str) -> dict[str, Any]:
        return {
            "id": leg.request.call.rid,
            "object": kind,
            "created": int(wall()),
            "model": self.node.config.model,
        }

    async def _openai_frames(self, path: str, body: dict[str, Any], leg: RequestLeg) -> AsyncIterator[bytes]:
        head = self._head(path, leg, "chat.completion.chunk" if path == CHAT else "text_completion")
        logprobs = self.node.faults.logprobs(leg.request.call)

        def frame(content: dict[str, Any], finish: dict[str, Any]) -> bytes:
            choice = {"index": 0, **content, "logprobs": logprobs, **finish}
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
                    "message": self.node.faults.error_text(ended.message),
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

    def document(self, path: str) -> Any:
        """The body of a discovery path, before disclosure faults."""
        if path in ("/server_info", "/get_server_info"):
            return documents.server_info(self.node, self.port)
        if path in ("/model_info", "/get_model_info"):
            return documents.model_info(self.node)
        return documents.models(self.node)

    def exposition(self) -> str:
        return self.node.faults.metrics(sglang_metrics(self.node))

    def tokenize(self, body: dict[str, Any]) -> Response:
        """``/tokenize``: ids, count and the tokenizer's own limit (not the effective context)."""
        messages = body.get("messages")
        tokens = encode(base.chat_text(messages)) if messages else base.prompt_tokens(body.get("prompt"))
        document = {"tokens": tokens.tolist(), "count": len(tokens), "max_model_len": self.node.context}
        return base.json_response(document)


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
