"""How SGLang is asked: token ids on ``/generate`` or ``/v1/completions``, aborts inside a 200.

Sources: reference shapes of ``entrypoints/http_server.py``, ``managers/tokenizer_manager.py:1338``
(context check), ``managers/tp_worker.py`` (max_req_len = min(context, pool) - 1, input limit 5 less).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from kvaudit.auditor.engines.completion import (
    Call,
    CompletionOptions,
    Dialect,
    Mode,
    ParsedPayload,
    _count,
    _with_ids,
)
from kvaudit.auditor.engines.payload_text import string
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.text.spelling import Prompt

INPUT_MARGIN = 5
"""max_req_input_len is this much below max_req_len: the room that the last accepted prompt has."""


class SGLangDialect(Dialect):
    """``/v1/completions`` first: routers that pass token ids exist for both, and its usage block is
    the one that tenants see; older gateways take strings only there, but ids on ``/generate``."""

    modes = (Mode.COMPLETION_IDS, Mode.GENERATE_IDS, Mode.COMPLETION_TEXT, Mode.CHAT_TEXT)
    generate = "/generate"
    salted_modes = (*Dialect.salted_modes, Mode.GENERATE_IDS)
    counters = {
        "served_tokens": ("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        "cached_tokens": ("sglang:cached_tokens_total",),
        "pool_used": ("sglang:num_used_tokens",),
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
    }
    shares = {"pool_share": "sglang:token_usage"}

    def call(self, mode: Mode, prompt: Prompt, options: CompletionOptions) -> Call:
        if mode is not Mode.GENERATE_IDS:
            return super().call(mode, prompt, options)
        fields: dict[str, Any] = {
            "sampling_params": {"max_new_tokens": options.max_tokens, "temperature": options.temperature},
            "stream": options.stream,
        }
        if options.salt is not None:
            fields["extra_key"] = options.salt  # every version with salts knows it; cache_salt only by 0.5.19
        return Call(self.generate, _with_ids(fields, b"input_ids", prompt))

    def parse(self, payload: Any) -> ParsedPayload:
        if not isinstance(payload, dict) or not isinstance(payload.get("meta_info"), dict):
            return super().parse(payload)
        meta = payload["meta_info"]
        finish, error, code = _finish(meta.get("finish_reason"))
        return ParsedPayload(
            text=string(payload.get("text")),
            cumulative=True,
            finish=finish,
            error=error,
            code=code,
            prompt_tokens=_count(meta.get("prompt_tokens")),
            completion_tokens=_count(meta.get("completion_tokens")),
            cached_tokens=_count(meta.get("cached_tokens")),
        )

    def next_text(self, payload: Any, model: str, build: str) -> str | None:
        """As `Dialect.next_text`; a native frame holds the whole text so far and is left to `parse`."""
        if isinstance(payload, dict) and "meta_info" in payload:
            return None
        return super().next_text(payload, model, build)

    def tokenize(self, text: str, model: str) -> Call | None:
        return Call(
            self.tokenizer, orjson.dumps({"model": model, "prompt": text, "add_special_tokens": False})
        )

    def room(self, nodes: Iterable[EngineFacts], prompt_tokens: int) -> int | None:
        """Room on the node that generates (decode, or unified): its input limit plus the margin less
        the prompt; a unified pool keeps its last page free. None when no such node is known."""
        rooms = []
        for facts in nodes:
            if facts.role.value == "prefill":
                continue
            bounds = [reading.value for reading in (facts.context, facts.pool) if reading.value is not None]
            if facts.input_limit.value is not None:
                bounds.append(facts.input_limit.value + INPUT_MARGIN)
            if facts.role.value != "decode" and facts.pool.value is not None:
                page = facts.setting("page_size").value
                bounds.append(facts.pool.value - (page if isinstance(page, int) and page > 1 else 1))
            if bounds:
                rooms.append(min(bounds) - 1 - prompt_tokens)
        return max(0, min(rooms)) if rooms else None


def _finish(reason: Any) -> tuple[str, str, int | None]:
    """``finish_reason`` is null, a string, or an object whose type may be abort with a message."""
    if isinstance(reason, dict):
        kind = string(reason.get("type"))
        message = string(reason.get("message"))
        return kind, message if kind == "abort" else "", _count(reason.get("status_code"))
    return string(reason), "", None
