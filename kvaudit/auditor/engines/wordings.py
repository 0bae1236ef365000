"""What errors and answers say in words: about the prompt's length, about the wanted output, for a guardrail.

Data, one line a wording, each with the server that says it; `tests/auditor/engines/test_wordings.py` has an example of
every one. An error about the wanted output says nothing about the prompt, so it is told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST_ERROR = 4_000
"""Characters of a message that are searched for its meaning."""

LENGTH = (
    r"context length",  # vLLM, SGLang, OpenAI, DeepSeek, Fireworks
    r"context window",  # OpenAI's responses, Groq, LiteLLM
    r"context_window|ContextWindow",  # LiteLLM's exception, Bedrock
    r"context size",  # llama.cpp
    r"exceeds? the maximum allowed length",  # SGLang
    r"longer than the",  # SGLang
    r"(?:input|prompt) length",  # SGLang, TensorRT-LLM, DashScope
    r"too long",  # Anthropic, Bedrock, gateways
    r"prompt exceeds max length|exceeds? (?:the )?max(?:imum)? (?:prompt|input) length",  # Zhipu
    r"maximum prompt length",  # xAI
    r"max_num_tokens|max_seq_len",  # TensorRT-LLM
    r"must have less than \d+ tokens",  # text-generation-inference
    r"upper bound for \d+ input tokens",  # LMDeploy
    r"maximum number of (?:input )?tokens",  # Gemini
    r"tokens?\b[^.]{0,60}\bcannot exceed|cannot exceed[^.]{0,60}\btokens?\b",  # Cohere
    r"too large for model with \d+ maximum",  # Mistral
    r"exceeded model token limit|maximum token limit",  # Moonshot
    r"reduce the length of the (?:messages|prompt|input)",  # OpenAI, Groq
    r"`?inputs`? tokens \+ `?max_new_tokens`? must be",  # text-generation-inference, Together
)
"""The prompt is too long."""

CODES = (
    "context_length_exceeded",  # OpenAI, Azure, Groq
    "exceed_context_size_error",  # llama.cpp
    "exceed_context_size",
    "string_above_max_length",  # OpenAI
    "prompt_too_long",
    "input_too_long",
    "ContextWindowExceededError",  # LiteLLM
    "max_tokens_exceeded",
)
"""Codes and types of errors that say the same without a sentence."""

OUTPUT = (
    r"max_(?:completion_|new_)?tokens'? (?:is too large|must|cannot exceed)",
    r"requested token count exceeds",
    r"output tokens and your prompt",
    r"tokens to generate",
    r"maximum number of (?:output|completion|generated|new) tokens",
)
"""The wanted output does not fit: a 400 that says nothing about the prompt (checks.md 3)."""

NO_ROOM = r"max_tokens`? (?:\(-\d+\) )?must be (?:at least 1, got (?:0|-\d+)|greater than 0)"
"""vLLM 0.32 at exactly max_model_len: the engine, not the caller, arrived at zero output tokens."""

LIMITS = (
    r"maximum context length (?:is|of) (\d+)",
    r"maximum context length: (\d+)",  # Fireworks
    r"maximum allowed length \((\d+) tokens\)",
    r"model's context length \((\d+) tokens\)",
    r"max_seq_len \((\d+)\)",
    r"max_num_tokens \((\d+)\)",
    r"maximum model length of (\d+)",
    r"context size \((\d+) tokens\)",
    r"must have less than (\d+) tokens",
    r"model context length \((\d+)\)",
    r"upper bound for (\d+) input tokens",
    r"maximum number of (?:input )?tokens allowed \((\d+)\)",  # Gemini
    r"cannot exceed (\d+)",  # Cohere
    r"tokens > (\d+) maximum",  # Anthropic
    r"too large for model with (\d+) maximum",  # Mistral
    r"maximum prompt length is (\d+)",  # xAI
    r"token limit: (\d+)",  # Moonshot
)
"""Where a message names the limit in tokens."""

GUARD_FINISHES = frozenset(
    (
        "content_filter",
        "content_filtered",
        "guardrail",
        "guardrail_intervened",
        "safety",
        "refusal",
        "blocked",
    )
)
"""Why an answer ended that something before the model wrote, or cut off."""

GUARD_CODES = frozenset(
    ("content_filter", "content_policy_violation", "guardrail_violation", "moderation_blocked")
)

TELLING_CODES = frozenset(CODES) | GUARD_CODES

GUARD = (
    r"(?:i'?m|i am) (?:sorry|unable|not able)\b.{0,60}\b(?:can(?:no|')?t|unable|not able|won't)\b.{0,40}"
    r"\b(?:assist|help|comply|fulfill|process|answer)",
    r"\bi (?:can(?:no|')?t|won't|am unable to) (?:assist|help|comply|fulfill) (?:you )?with (?:that|this|your)",
    r"(?:request|prompt|message|response|content) (?:was|has been|is) (?:blocked|filtered|flagged|rejected)",
    r"(?:violates?|against) (?:our|the) (?:usage |content |acceptable use )?(?:polic|guideline)",
    r"content management policy",  # Azure
    r"prompt injection (?:attempt )?(?:was )?detected",
)
"""A guard's or a trained refusal, in an answer of one sentence."""

LONGEST_REFUSAL = 400
"""Characters of an answer that can be taken for nothing but a refusal."""

_QUOTES = str.maketrans({"’": "'", "‘": "'"})


def _any(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE | re.DOTALL)


_LENGTH, _OUTPUT, _NO_ROOM, _GUARD = _any((*LENGTH, *CODES)), _any(OUTPUT), _any((NO_ROOM,)), _any(GUARD)
_LIMITS = tuple(re.compile(pattern, re.IGNORECASE) for pattern in LIMITS)


def names_length(message: str, prompt_tokens: int) -> bool:
    """Whether an error to a prompt of this length is about its length, not about the wanted output. A message about
    prompt plus output counts where the prompt alone reaches the limit."""
    message = message[:LONGEST_ERROR]
    if _NO_ROOM.search(message):
        return True
    if _OUTPUT.search(message):
        limit = limit_named(message)
        return limit is not None and prompt_tokens >= limit
    return bool(_LENGTH.search(message))


def limit_named(message: str) -> int | None:
    """The limit in tokens that an error names."""
    message = message[:LONGEST_ERROR]
    for pattern in _LIMITS:
        if match := pattern.search(message):
            return int(match[1]) if len(match[1]) <= 12 else None
    return None


def refused_in_text(text: str, prompt_tokens: int) -> bool:
    """Whether a 200 holds the sentence of an error about the length, in place of an answer."""
    return 0 < len(text) <= LONGEST_REFUSAL and names_length(text, prompt_tokens)


def guarded(text: str, finish: str) -> bool:
    """Whether a guardrail answered in place of the model, by the reason of the end or by its sentence."""
    if finish.lower() in GUARD_FINISHES:
        return True
    if any(code in text for code in GUARD_CODES):
        return len(text) <= LONGEST_REFUSAL
    return 0 < len(text) <= LONGEST_REFUSAL and bool(_GUARD.search(text.translate(_QUOTES)))
