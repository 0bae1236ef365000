"""Builds requests for completions and parses their answers, in the OpenAI shapes that engines share.

A `Dialect` is pure: it builds request bodies out of prompts that are already encoded, and reads
payloads (a whole answer, or one frame of a stream) into what they said. An adapter that has one names
it ``dialect``; engines differ by overriding a method (kvaudit.auditor.engines.sglang).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from kvaudit.auditor.engines import _prometheus, wordings
from kvaudit.auditor.engines.answers import Answer
from kvaudit.auditor.engines.payload_text import error_in, said_in, spoken, string
from kvaudit.auditor.readings import EngineFacts, whole_number
from kvaudit.auditor.text.spelling import Prompt


class Mode(StrEnum):
    """A way to send a prompt, most exact first. The prober takes the first that the target answers."""

    COMPLETION_IDS = "completions with token ids"
    GENERATE_IDS = "generate with token ids"
    COMPLETION_TEXT = "completions with text"
    CHAT_TEXT = "chat with text"

    @property
    def takes_ids(self) -> bool:
        return self in (Mode.COMPLETION_IDS, Mode.GENERATE_IDS)


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """What is asked of an answer: model, length, temperature, salt, and whether it is streamed."""

    model: str
    max_tokens: int
    temperature: float = 0.0
    salt: str | None = None
    stream: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """One request: an allow-listed path and its body."""

    path: str
    body: bytes


@dataclass(slots=True)  # not frozen: one is made per frame, and freezing costs half of that
class ParsedPayload:
    """What one payload says. ``cumulative`` text replaces what earlier frames said. ``code`` is the status that
    an error inside a 200 names, None where it names none."""

    text: str = ""
    cumulative: bool = False
    finish: str = ""
    error: str = ""
    code: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    model: str = ""
    build: str = ""
    answer_id: str = ""
    created: int | None = None


_PLAIN_FRAME = frozenset(("id", "object", "created", "model", "choices", "system_fingerprint", "usage"))
_PLAIN_CHOICE = frozenset(
    ("index", "delta", "text", "finish_reason", "logprobs", "matched_stop", "stop_reason", "token_ids")
)
_PLAIN_DELTA = frozenset(("role", "content", "reasoning", "reasoning_content"))
"""What a frame holds that says nothing but its next text. Whatever else a frame holds may be somebody's text."""


class Dialect:
    """The OpenAI completions and chat shapes, as vLLM and most gateways speak them."""

    modes: tuple[Mode, ...] = (Mode.COMPLETION_IDS, Mode.COMPLETION_TEXT, Mode.CHAT_TEXT)
    completions = "/v1/completions"
    chat = "/v1/chat/completions"
    tokenizer = "/tokenize"
    health = "/health"
    salt_field = "cache_salt"
    salted_modes: tuple[Mode, ...] = (Mode.COMPLETION_IDS, Mode.COMPLETION_TEXT, Mode.CHAT_TEXT)
    metrics = "/metrics"
    counters: Mapping[str, tuple[str, ...]] = {
        "served_tokens": ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
        "cached_tokens": ("vllm:prefix_cache_hits_total",),
        "pool_used": ("vllm:kv_cache_usage_perc",),
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
    }
    """Our name -> metrics of one node that add up to it. ``pool_used`` is a share or tokens: it is only
    compared with itself."""
    shares: Mapping[str, str] = {"pool_share": "vllm:kv_cache_usage_perc"}
    """Our name -> a gauge between 0 and 1; of several series (ranks) the largest counts."""

    def call(self, mode: Mode, prompt: Prompt, options: CompletionOptions) -> Call:
        """The request for this prompt; ValueError when the mode cannot carry it."""
        fields: dict[str, Any] = {
            "model": options.model,
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
        }
        if options.stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if options.salt is not None:
            if mode not in self.salted_modes:
                raise ValueError(f"{mode.value} cannot carry a cache salt")
            fields[self.salt_field] = options.salt
        if mode is Mode.CHAT_TEXT:
            fields["messages"] = [{"role": "user", "content": _text(prompt)}]
            return Call(self.chat, orjson.dumps(fields))
        if mode is Mode.COMPLETION_TEXT:
            return Call(self.completions, orjson.dumps(fields | {"prompt": _text(prompt)}))
        return Call(self.completions, _with_ids(fields, b"prompt", prompt))

    def parse(self, payload: Any) -> ParsedPayload:
        """What a whole answer or one stream frame says. Never raises on arbitrary JSON."""
        if not isinstance(payload, dict):
            return ParsedPayload(error="the answer is no JSON object")
        choices = payload.get("choices")
        text, finish = said_in(choices)
        said = ParsedPayload(text, False, finish)
        if (
            "error" in payload
            or (choices is None and "choices" not in payload)
            or payload.get("object") == "error"
            or payload.get("type") == "error"
        ):
            said.error, said.code = error_in(payload)
        said.model = string(payload.get("model"))
        said.build = string(payload.get("system_fingerprint"))
        said.answer_id, said.created = string(payload.get("id")), _count(payload.get("created"))
        usage = payload.get("usage")
        if isinstance(usage, dict):
            said.prompt_tokens = _count(usage.get("prompt_tokens"))
            said.completion_tokens = _count(usage.get("completion_tokens"))
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                said.cached_tokens = _count(details.get("cached_tokens"))
        return said

    def next_text(self, payload: Any, model: str, build: str) -> str | None:
        """The text of a frame that says nothing but its next text, of this model and build, as nearly all do;
        None for any other, which `parse` reads whole."""
        if payload.__class__ is not dict or payload.get("model") != model or payload.get("usage"):
            return None
        if (
            "error" in payload
            or (payload.get("system_fingerprint") or "") != build
            or payload.get("object") == "error"
            or payload.get("type") == "error"
        ):
            return None
        choices = payload.get("choices")
        if choices.__class__ is not list or len(choices) != 1:
            return None
        choice = choices[0]
        if choice.__class__ is not dict or choice.get("finish_reason") or choice.get("logprobs"):
            return None
        if not payload.keys() <= _PLAIN_FRAME or not choice.keys() <= _PLAIN_CHOICE:
            return None
        if "delta" in choice:
            delta = choice["delta"]
            return spoken(delta) if delta.__class__ is dict and delta.keys() <= _PLAIN_DELTA else None
        return spoken(choice)

    def tokenize(self, text: str, model: str) -> Call | None:
        """The tokenizer call, without special tokens; None where the engine has no endpoint."""
        return Call(
            self.tokenizer, orjson.dumps({"model": model, "prompt": text, "add_special_tokens": False})
        )

    def token_ids(self, payload: Any) -> tuple[int, ...] | None:
        """Token ids out of the tokenizer's answer, None when it holds none."""
        found = payload.get("tokens") if isinstance(payload, dict) else None
        if isinstance(found, list) and found and all(type(token) is int and token >= 0 for token in found):
            return tuple(found)
        return None

    def names_length(self, message: str, prompt_tokens: int) -> bool:
        """Whether an error to a prompt of this length is about its length, not about the wanted
        output. A message about prompt plus output counts where the prompt alone reaches the limit."""
        return wordings.names_length(message, prompt_tokens)

    def limit_named(self, message: str) -> int | None:
        """The limit in tokens that an error names."""
        return wordings.limit_named(message)

    def room(self, nodes: Iterable[EngineFacts], prompt_tokens: int) -> int | None:
        """Tokens that can be generated after such a prompt; None when the limits are unknown.
        vLLM: the context holds prompt and output, so one token is left at N - 1."""
        contexts = [facts.context.value for facts in nodes if facts.context.value is not None]
        return max(0, min(contexts) - prompt_tokens) if contexts else None

    def read_counters(self, body: bytes) -> dict[str, float]:
        """The counters that a metrics page shows; a name with a missing part is left out."""
        seen = _prometheus.parse(Answer(self.metrics, 200, body))
        found: dict[str, float] = {}
        for name, parts in self.counters.items():
            totals = [seen.total(part) for part in parts]
            if all(total is not None for total in totals):
                found[name] = sum(total for total in totals if total is not None)
        for name, gauge in self.shares.items():
            values = [sample.value for sample in seen.samples(gauge)]
            known = [value for value in values if value is not None and 0 <= value <= 1]
            if known:
                found[name] = max(known)
        return found


def _with_ids(fields: Mapping[str, Any], name: bytes, prompt: Prompt) -> bytes:
    if prompt.ids is None:
        raise ValueError("this prompt has no token ids")
    return b"".join((b'{"', name, b'":[', prompt.ids, b"],", orjson.dumps(fields)[1:]))


def _text(prompt: Prompt) -> str:
    if prompt.text is None:
        raise ValueError("this prompt has no text")
    return prompt.text


def _count(value: Any) -> int | None:
    number = whole_number(value)
    return number if number is not None and 0 <= number <= 10**12 else None
