"""The context of vLLM: what its card announces, and what the process shows of its own."""

from __future__ import annotations

import re

from kvaudit.auditor.engines import _json
from kvaudit.auditor.engines.vllm.pools import CACHE_INFO
from kvaudit.auditor.engines.vllm.seen import ParsedAnswers, base_cards
from kvaudit.auditor.readings import Reading, derived, largest, tokens, unknown

_MAX_SEQ_LEN = re.compile(r"\bmax_seq_len=(\d{1,13})\b")
_DECIMAL = re.compile(r"\d{1,12}(?:\.\d{1,20})?", re.ASCII)


def read_context(seen: ParsedAnswers) -> tuple[Reading[int], tuple[str, ...]]:
    """The largest context that any source tells, and how they differ. The card is what is announced; the process tells
    its own in the development mode, and by how many such requests its pool holds."""
    announcements = [
        tokens(card.get("max_model_len"), "GET /v1/models data[].max_model_len") for card in base_cards(seen)
    ]
    announced, unlike = largest(announcements)
    if announced is None:
        return announcements[0] if announcements else unknown(_json.why_not(seen.answers, "/v1/models")), ()
    own, more = largest([announced, *_development_context(seen), *_implied_contexts(seen, announced)])
    return own or announced, tuple(dict.fromkeys((*unlike, *more)))


def _development_context(seen: ParsedAnswers) -> list[Reading[int]]:
    """The text of ``vllm_config`` in development mode names ``max_seq_len``."""
    config = _json.mapping(_json.parsed(seen.answers.get("/server_info"))).get("vllm_config")
    named = _MAX_SEQ_LEN.search(config) if isinstance(config, str) else None
    return [tokens(named.group(1), "GET /server_info vllm_config max_seq_len")] if named else []


def _implied_contexts(seen: ParsedAnswers, announced: Reading[int]) -> list[Reading[int]]:
    """``kv_cache_size_tokens / kv_cache_max_concurrency``, where it is clearly above what is announced (both labels are
    rounded): a card that was curated on the way."""
    found = []
    for line in seen.lines:
        size = tokens(line.get("kv_cache_size_tokens"), "").value
        times = line.get("kv_cache_max_concurrency", "")
        if size is None or not _DECIMAL.fullmatch(times) or not float(times):
            continue
        implied = tokens(round(size / float(times)), "")
        if (implied.value or 0) > 1.05 * (announced.value or 0):
            source = f"GET /metrics {CACHE_INFO} labels kv_cache_size_tokens / kv_cache_max_concurrency"
            found.append(derived(implied.value or 0, source))
    return found
