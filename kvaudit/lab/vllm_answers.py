"""The vLLM API of a node: bodies, error shapes and stream frames as recorded from 0.32.0.

Kept as they are: a refused stream is a plain 400, and a request that fails later is an error frame inside
HTTP 200 followed by ``[DONE]``.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response

from kvaudit.lab import http_base as base
from kvaudit.lab.clock import wall
from kvaudit.lab.node import Node
from kvaudit.lab.request import Call, FinishAbort, FinishStop, Refused, encode, text_of
from kvaudit.lab.request_leg import RequestLeg, start
from kvaudit.lab.vllm_exposition import vllm_metrics

COMPLETIONS, CHAT, INVOCATIONS = "/v1/completions", "/v1/chat/completions", "/invocations"
_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


class VLLMAnswers:
    """What a node answers to a path and a body. ``tickets`` gives the writer tag of a request by its room."""

    def __init__(self, node: Node, tickets: Callable[[Call], int]) -> None:
        self.node, self.tickets, self.port = node, tickets, 0
        described = f"{node.config.model}|{node.context}|{node.pool.capacity}|{node.config.page_size}"
        self.fingerprint = f"vllm-{node.config.version}-{hashlib.sha256(described.encode()).hexdigest()[:8]}"

    def parse(self, path: str, body: dict[str, Any]) -> Call:
        """A request body to a call; Refused names what is wrong."""
        model = body.get("model")
        if model is not None and model != self.node.config.model:
            raise Refused(
                f"The model `{model}` does not exist. Valid aliases: {self.node.config.model}.", 404, "model"
            )
        if path == CHAT:
            tokens = encode(base.chat_text(body.get("messages")))
            wanted = base.number(
                body, "max_completion_tokens", "max_tokens", default=max(0, self.node.context - len(tokens))
            )
        else:
            tokens = base.prompt_tokens(body.get("prompt"))
            wanted = base.number(body, "max_tokens", default=16)
        salt = body.get("cache_salt")
        _check_salt(body.get("client_salt", salt))
        room = body.get("bootstrap_room")
        call = Call(
            tokens,
            wanted,
            base.temperature(body),
            base.stops(body),
            str(salt or ""),
            room if isinstance(room, int) else None,
            ("chatcmpl-" if path == CHAT else "cmpl-") + uuid.uuid4().hex[:16],
        )
        call.ticket = self.tickets(call)
        return call

    async def answer(self, path: str, body: dict[str, Any]) -> Response:
        """Serve one generation request; streaming when the body says so."""
        path = CHAT if path == INVOCATIONS and "messages" in body else path
        streamed = body.get("stream") is True
        try:
            leg = start(self.node, self.parse(path, body))
        except Refused as refused:
            if streamed and self.node.faults.streams_every_refusal():
                return base.EventStream(self._error_frames(refused.message, refused.status, refused.param))
            return self.error(path, refused.message, refused.status, refused.param)
        if streamed:
            return base.EventStream(self._frames(path, body, leg), leg.cancel)
        async with leg:
            await leg.ended()
        ended = leg.request.finished_reason
        if isinstance(ended, FinishAbort):
            return self.error(path, ended.message, ended.status)
        return base.json_response(self._body(path, body, leg))

    def error(self, path: str, message: str, status: int, param: str | None = None) -> Response:
        return base.json_response(_error(self.node.faults.error_text(message), status, param), status)

    async def _error_frames(self, message: str, status: int, param: str | None) -> AsyncIterator[bytes]:
        yield base.sse(_error(message, status, param))
        yield base.DONE

    def _usage(self, leg: RequestLeg, details_of: str = "body") -> dict[str, Any]:
        """``details_of``: "body", "chat stream" or "completion stream"; each fills the details its way."""
        request = leg.request
        made = len(request.output_ids)
        details: dict[str, Any] | None = None
        if self.node.config.cache_report:
            details = {"cached_tokens": request.cached_tokens}
            if details_of == "body":
                details |= {"created_cache_tokens": None, "multimodal_tokens": None}
            elif details_of == "chat stream":
                details["created_cache_tokens"] = 0
        return {
            "prompt_tokens": request.prompt_tokens,
            "total_tokens": request.prompt_tokens + made,
            "completion_tokens": made,
            "prompt_tokens_details": details,
        }

    def _head(self, leg: RequestLeg, kind: str) -> dict[str, Any]:
        model = self.node.config.model
        return {"id": leg.request.call.rid, "object": kind, "created": int(wall()), "model": model}

    def _body(self, path: str, body: dict[str, Any], leg: RequestLeg) -> dict[str, Any]:
        request = leg.request
        finish = _finish(request.finished_reason)
        text, ids = text_of(request.output_ids), body.get("return_token_ids") is True
        logprobs = self.node.faults.logprobs(request.call)
        if path == CHAT:
            message: dict[str, Any] = {
                "role": "assistant",
                "content": text,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [],
                "reasoning": None,
            }
            choice: dict[str, Any] = {
                "index": 0,
                "message": message,
                "logprobs": logprobs,
                **finish,
                "token_ids": request.output_ids if ids else None,
            }
        else:
            choice = {
                "index": 0,
                "text": text,
                "logprobs": logprobs,
                **finish,
                "token_ids": request.output_ids if ids else None,
                "prompt_logprobs": None,
                "prompt_token_ids": request.call.input_ids.tolist() if ids else None,
                "routed_experts": None,
            }
        return {
            **self._head(leg, "chat.completion" if path == CHAT else "text_completion"),
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": self.fingerprint,
            "usage": {**self._usage(leg), "completion_tokens_details": None},
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    async def _frames(self, path: str, body: dict[str, Any], leg: RequestLeg) -> AsyncIterator[bytes]:
        chat = path == CHAT
        head = self._head(leg, "chat.completion.chunk" if chat else "text_completion")
        options = body.get("stream_options")
        usage = isinstance(options, dict) and options.get("include_usage") is True
        logprobs = self.node.faults.logprobs(leg.request.call)
        async with leg:
            if chat:
                first = {
                    "index": 0,
                    "delta": {"role": "assistant", "content": ""},
                    "logprobs": None,
                    "finish_reason": None,
                }
                yield base.sse({**head, "choices": [first], "prompt_token_ids": None, "prompt_text": None})
            held = ""
            async for piece in leg.pieces():
                if held:
                    yield base.sse({**head, "choices": [_piece(chat, held, None, logprobs)]})
                held = piece  # the last piece goes out with the reason of the end
            ended = leg.request.finished_reason
            if isinstance(ended, FinishAbort):
                yield base.sse(_error(self.node.faults.error_text(ended.message), ended.status, None))
            else:
                yield base.sse({**head, "choices": [_piece(chat, held, ended, logprobs)]})
                if usage:
                    final = {
                        **head,
                        "choices": [],
                        "usage": self._usage(leg, "chat stream" if chat else "completion stream"),
                    }
                    yield base.sse({**final, "system_fingerprint": self.fingerprint})
            yield base.DONE

    def document(self, path: str) -> Any:
        """``/v1/models``; ``created`` is the time of the request, as there."""
        model, created = self.node.config.model, int(wall())
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": f"/models/{model}",
            "parent": None,
            "max_model_len": self.node.context,
            "permission": [permission],
        }
        return {"object": "list", "data": [card]}

    def exposition(self) -> str:
        return self.node.faults.metrics(vllm_metrics(self.node))

    def tokenize(self, body: dict[str, Any]) -> Response:
        messages = body.get("messages")
        tokens = encode(base.chat_text(messages)) if messages else base.prompt_tokens(body.get("prompt"))
        document = {
            "count": len(tokens),
            "max_model_len": self.node.context,
            "tokens": tokens.tolist(),
            "token_strs": None,
        }
        return base.json_response(document)


def _error(message: str, status: int, param: str | None) -> dict[str, Any]:
    kind = _TYPES.get(status, "InternalServerError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def _check_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise Refused(
            "Parameter 'cache_salt' must be a non-empty string. (parameter=cache_salt)", param="cache_salt"
        )
    if len(salt) > 128 or any(sign in salt for sign in "@/\\\0"):
        raise Refused(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or "
            "NUL. (parameter=cache_salt)",
            param="cache_salt",
        )


def _finish(ended: object) -> dict[str, Any]:
    if isinstance(ended, FinishStop):
        return {"finish_reason": "stop", "stop_reason": ended.matched}
    return {"finish_reason": "length", "stop_reason": None}


def _piece(chat: bool, text: str, ended: object, logprobs: object) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0}
    choice |= {"delta": {"content": text}} if chat else {"text": text}
    choice |= {"logprobs": logprobs, **(_finish(ended) if ended else {"finish_reason": None})}
    if not chat:
        choice |= {"stop_reason": choice.get("stop_reason"), "prompt_token_ids": None}
    return choice | {"token_ids": None}
