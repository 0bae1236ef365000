"""How TensorRT-LLM is asked: unknown fields are refused, salts exist on chat only.

Sources: ``tensorrt_llm/serve/openai_protocol.py`` (``extra="forbid"``), reference engines.md 1.2 and 1.3.
"""

from __future__ import annotations

from typing import Any

import orjson

from kvaudit.auditor.engines.completion import Call, Dialect, Mode


class TRTLLMDialect(Dialect):
    """``/v1/completions`` takes ids but no salt; ``/_internal/tokenize`` takes the text alone."""

    tokenizer = "/_internal/tokenize"
    salted_modes = (Mode.CHAT_TEXT,)
    metrics = "/prometheus/metrics"
    counters = {
        "cached_tokens": ("trtllm_prompt_cached_tokens_total",),
        "pool_used": ("trtllm_kv_cache_used_blocks",),
    }

    def tokenize(self, text: str, model: str) -> Call | None:
        fields: dict[str, Any] = {"prompt": text}
        return Call(self.tokenizer, orjson.dumps(fields))
