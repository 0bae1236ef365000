"""What errors and answers say in words: one example of every wording, and what only sounds like one."""

from __future__ import annotations

import re

import pytest

from kvaudit.auditor.engines.wordings import (
    CODES,
    GUARD,
    GUARD_FINISHES,
    LENGTH,
    LIMITS,
    OUTPUT,
    guarded,
    limit_named,
    names_length,
    refused_in_text,
)

SENT = 9_000

TOO_LONG = (
    ("This model's maximum context length is 8192 tokens.", 8_192),
    ("maximum context length of 8192", 8_192),
    ("The prompt is too long: 9000, model maximum context length: 8191", 8_191),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    ("litellm.ContextWindowExceededError: request refused", None),
    ("input is outside the context_window", None),
    ("the request exceeds the available context size (8192 tokens), try increasing it", 8_192),
    ("Input length (9000 tokens) exceeds the maximum allowed length (8185 tokens).", 8_185),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8_192),
    ("Range of input length should be [1, 8192]", None),
    ("Input is too long for requested model.", None),
    ("prompt is too long: 9000 tokens > 8192 maximum", 8_192),
    ("Prompt exceeds max length", None),
    ("This model's maximum prompt length is 8192 but the request contains 9000 tokens.", 8_192),
    ("splited_prompt_len (9000) of max_seq_len (8192)", 8_192),
    ("The sum of prompt length should not exceed max_num_tokens (8192)", 8_192),
    ("`inputs` must have less than 8192 tokens. Given: 9000", 8_192),
    ("9000 is above the upper bound for 8192 input tokens", 8_192),
    ("The input token count (9000) exceeds the maximum number of tokens allowed (8192).", 8_192),
    ("exceeds the maximum number of input tokens allowed (8192)", 8_192),
    ("too many tokens: total number of tokens in the prompt cannot exceed 8192 - received 9000", 8_192),
    ("The prompt cannot exceed 8192 tokens", 8_192),
    ("Prompt contains 9000 tokens, too large for model with 8192 maximum context length", 8_192),
    ("Your request exceeded model token limit: 8192", 8_192),
    ("Please reduce the length of the messages or completion.", None),
    ("`inputs` tokens + `max_new_tokens` must be <= 8193", None),
    ("maximum model length of 8192, which is longer than the", 8_192),
    ("model context length (8192)", 8_192),
    *((f"an error without a message ({code})", None) for code in CODES),
)


@pytest.mark.parametrize(("message", "limit"), TOO_LONG)
def test_too_long(message: str, limit: int | None) -> None:
    assert names_length(message, SENT)
    assert limit_named(message) == limit


@pytest.mark.parametrize(
    "message",
    [
        "'max_tokens' is too large: 100.",
        "max_completion_tokens must be less than 4096",
        "max_tokens cannot exceed 4096",
        "Requested token count exceeds what is left",
        "you requested 100 output tokens and your prompt contains 90",
        "The maximum number of tokens to generate is 4096",
        "maximum number of output tokens is 4096",
        "temperature cannot exceed 2",
        "at most 128 tools cannot exceed the plan",
        "Internal server error",
        "model not found (invalid_request)",
        "",
    ],
)
def test_about_something_else(message: str) -> None:
    assert not names_length(message, 90)


@pytest.mark.parametrize("wordings", [LENGTH, LIMITS, OUTPUT, GUARD])
def test_no_wording_is_without_an_example(wordings: tuple[str, ...]) -> None:
    said = [message for message, _ in TOO_LONG] + list(REFUSALS) + list(OF_OUTPUT)
    assert [one for one in wordings if not any(re.search(one, text, re.IGNORECASE) for text in said)] == []


OF_OUTPUT = (
    "'max_tokens' is too large",
    "requested token count exceeds",
    "output tokens and your prompt",
    "tokens to generate",
    "maximum number of output tokens",
)

REFUSALS = (
    "I'm sorry, but I can't assist with that request.",
    "I’m sorry, I am not able to help with that.",
    "I cannot assist with that.",
    "I won't help with this request.",
    "Your request was blocked by policy 7.",
    "This content violates our usage policies.",
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "Prompt injection detected.",
)


@pytest.mark.parametrize("text", REFUSALS)
def test_a_guardrail_is_known_by_its_sentence(text: str) -> None:
    assert guarded(text, "stop")


@pytest.mark.parametrize("finish", sorted(GUARD_FINISHES))
def test_a_guardrail_is_known_by_how_it_ended(finish: str) -> None:
    assert guarded("", finish)
    assert guarded("half of an answ", finish.upper())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "walnut",
        "I'm sorry to hear that your mother is ill, please help yourself",
        "Dear Mrs Example, your request is with our colleagues",
        "I can't find the invoice. " * 40,
        "I'm sorry, but I can't assist with that request. " * 20,
    ],
)
def test_what_is_no_refusal(text: str) -> None:
    assert not guarded(text, "stop")


def test_the_sentence_of_an_error_as_answer() -> None:
    said = "Sorry, your message is too long: the maximum context length is 8192 tokens. Please shorten it."
    assert refused_in_text(said, SENT)
    assert not refused_in_text("", SENT)
    assert not refused_in_text("walnut", SENT)
    assert not refused_in_text(said * 9, SENT)
