"""Gathers the payloads of one answer into a `Reply`: its text, how the request ended, and the evidence that
stays."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply
from kvaudit.auditor.engines.completion import Call, CompletionOptions, Dialect, ParsedPayload
from kvaudit.auditor.engines.wordings import guarded, refused_in_text
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.verdict import Evidence

CLEAR_ERROR = 200
"""Characters of an error's first sentence that stay readable. What an engine says beyond may repeat a prompt."""

_SENTENCE = re.compile(rf".{{1,{CLEAR_ERROR}}}?(?:[.!?](?=\s|$)|\n|$)")


def clear_error(message: str) -> str:
    """The first sentence of an error."""
    found = _SENTENCE.match(message)
    return found[0].strip() if found else message[:CLEAR_ERROR]


PROBLEM_LENGTH = 500
CHARACTERS_PER_TOKEN = 256
ALLOWANCE = 10_000
"""Characters of text that an answer may have for each token asked for, and besides: a token of any vocabulary
is shorter. What goes on beyond is not read: it would be searched at our expense."""


def longest_text(max_tokens: int) -> int:
    """Characters after which an answer is longer than what was asked for can be."""
    return ALLOWANCE + CHARACTERS_PER_TOKEN * max_tokens


Seal = Callable[[bytes], bytes]
"""Encrypts generated text so that only the holder of a private key can open it."""

_BY_STATUS = {401: Outcome.DENIED, 403: Outcome.DENIED, 413: Outcome.TOO_LARGE}
_BY_STATUS |= dict.fromkeys((429, 503, 529), Outcome.BUSY)


@dataclass(slots=True)
class ReplyText:
    """What the payloads of one answer said, joined."""

    parts: list[str] = field(default_factory=list, repr=False)  # of the text, in their order
    length: int = 0  # characters of the text
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
    garbled: bool = False  # the answer, or a frame of it, is no JSON

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add_garbled(self, error: str) -> None:
        """A frame that is no JSON: an error event in plain text, or garbage."""
        if error:
            self.error = self.error or error
        else:
            self.garbled = True

    def add(self, payload: ParsedPayload) -> None:
        if payload.cumulative:
            self.parts, self.length = [payload.text], len(payload.text)
        elif payload.text:
            self.parts.append(payload.text)
            self.length += len(payload.text)
        if payload.error or payload.code is not None:
            self.error = self.error or payload.error
            self.code = payload.code if self.code is None else self.code
        if payload.finish and self.finish != "refusal":
            self.finish = payload.finish
        if payload.model:
            self.model = payload.model
        self.answer_id = self.answer_id or payload.answer_id
        self.created = payload.created if self.created is None else self.created
        if payload.build:
            self.build = payload.build
        if payload.prompt_tokens is not None:
            self.prompt_tokens = payload.prompt_tokens
        if payload.completion_tokens is not None:
            self.completion_tokens = payload.completion_tokens
        if payload.cached_tokens is not None:
            self.cached_tokens = payload.cached_tokens


def outcome_of(
    status: int, text: ReplyText, complete: bool, dialect: Dialect, prompt: Prompt, wish: CompletionOptions
) -> Outcome:
    """How an answer that was read to its end is to be taken (checks.md 3): the status proves
    transport, the body decides. ``complete``: ``[DONE]`` or a whole JSON document arrived."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return Outcome.FAILED
    about_length = bool(text.error) and dialect.names_length(text.error, prompt.tokens)
    if status >= 400:
        if about_length:
            return Outcome.REFUSED
        return Outcome.GUARDED if guarded(text.error, "") else Outcome.UNANSWERED
    if text.garbled:
        return Outcome.BROKEN
    if text.error:
        if about_length:
            return Outcome.REFUSED
        if guarded(text.error, text.finish):
            return Outcome.GUARDED
        if text.finish == "abort":
            return Outcome.CUT
        return Outcome.FAILED if (text.code or 0) >= 500 else Outcome.UNANSWERED
    if not complete:
        return Outcome.BROKEN
    few = text.completion_tokens is not None and text.completion_tokens <= 1
    if text.finish == "abort" or (text.finish == "length" and few and wish.max_tokens > 1):
        return Outcome.CUT
    if prompt.contents is None or not prompt.contents.answered(text.text):
        if guarded(text.text, text.finish):
            return Outcome.GUARDED
        if refused_in_text(text.text, prompt.tokens):
            return Outcome.HIDDEN
    return Outcome.ANSWERED if text.text or (text.completion_tokens or 0) >= 1 else Outcome.EMPTY


@dataclass(frozen=True, slots=True)
class ReplyRecorder:
    """Writes replies. ``key`` is the run's own: hashes of generated text can be compared within a
    run and say nothing outside it. ``seal`` None: generated text is not kept at all."""

    dialect: Dialect
    mode: str
    key: bytes
    seal: Seal | None = None

    def reply(
        self,
        outcome: Outcome,
        *,
        tenant: str,
        call: Call,
        prompt: Prompt,
        wish: CompletionOptions,
        status: int,
        said: ReplyText,
        first: float | None,
        seconds: float,
        problem: str = "",
        aside: Mapping[str, str] | None = None,
    ) -> Reply:
        message = problem[:PROBLEM_LENGTH] or clear_error(said.error)
        text = said.text[: longest_text(wish.max_tokens)]
        request = {
            "tenant": tenant,
            "mode": self.mode,
            "prompt_tokens": prompt.tokens,
            "max_tokens": wish.max_tokens,
            "temperature": wish.temperature,
            "salted": wish.salt is not None,
            "stream": wish.stream,
            **_named(call.body),
            "body_bytes": len(call.body),
        }
        response = {
            "outcome": outcome.value,
            "status": status,
            "finish": said.finish,
            "error": message,
            "prompt_tokens": said.prompt_tokens,
            "completion_tokens": said.completion_tokens,
            "cached_tokens": said.cached_tokens,
            "first_token_seconds": None if first is None else round(first, 4),
            "seconds": round(seconds, 4),
            "text_length": len(text),
            "text_hmac_sha256": hmac.new(self.key, text.encode(errors="replace"), hashlib.sha256).hexdigest(),
        }
        return Reply(
            outcome=outcome,
            status=status,
            text=text,
            finish=said.finish,
            error=message,
            limit_named=self.dialect.limit_named(said.error) if said.error else None,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            cached_tokens=said.cached_tokens,
            first_token=first,
            seconds=seconds,
            answer_id=said.answer_id,
            created=said.created,
            model=said.model,
            tokens_sent=prompt.tokens,
            mode=self.mode,
            stream=wish.stream,
            aside={**(aside or {}), "error": said.error},
            evidence=tuple(self._evidence(f"POST {call.path}", request, response, text, said.error)),
        )

    def _evidence(
        self, source: str, request: Mapping[str, Any], response: Mapping[str, Any], text: str, error: str
    ) -> list[Evidence]:
        items = [_document("request", source, request), _document("response", source, response)]
        beyond = error if error != clear_error(error) else ""
        return items + [sealed_text(self.seal, source, said) for said in (text, beyond) if said and self.seal]


def sealed_text(seal: Seal, source: str, text: str) -> Evidence:
    """Text of a stranger's, so that only the holder of the private key can read it."""
    sealed = seal(text.encode(errors="replace"))
    digest = hashlib.sha256(sealed).hexdigest()
    return Evidence("sealed", digest, source, sealed, "application/octet-stream")


WHOLE = 1_000_000
"""Bytes up to which a body is hashed as a whole: hashing seven megabytes costs as much as sending them."""

ENDS = 65_536


def _named(body: bytes) -> dict[str, str]:
    """A name for a request body: its SHA-256, of a long one that of its beginning and end, where all that is
    not repeated frames stands."""
    if len(body) <= WHOLE:
        return {"body_sha256": hashlib.sha256(body).hexdigest()}
    return {"body_ends_sha256": hashlib.sha256(body[:ENDS] + body[-ENDS:]).hexdigest()}


def _document(kind: str, source: str, content: Mapping[str, Any]) -> Evidence:
    body = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return Evidence(kind, hashlib.sha256(body).hexdigest(), source, body, "application/json")
