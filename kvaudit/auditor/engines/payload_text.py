"""Reads what one JSON payload of an answer says: its text in every shape that servers send it, or its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvaudit.auditor.engines import wordings
from kvaudit.auditor.readings import whole_number

PART_TEXTS = ("text", "value", "thinking", "reasoning", "refusal", "content")
"""Where the parts of a content hold text, thinking before what it came to (Mistral)."""

DEEPEST_PART = 6


def error_in(payload: Mapping[str, Any]) -> tuple[str, int | None]:
    """The error of a payload in any shape engines use: an ``error`` object, an ``error`` string,
    a top-level ``object: "error"``, FastAPI's ``detail``; ("", None) when there is none. A code that says more than
    the message stands behind it."""
    found = payload.get("error")
    if isinstance(found, dict):
        return _message(found)
    if isinstance(found, str) and found:
        return found, None
    if payload.get("object") == "error" or (payload.get("type") == "error" and "message" in payload):
        return _message(payload)
    if "choices" not in payload and isinstance(payload.get("detail"), str):
        return str(payload["detail"]), None
    return "", None


def _message(found: Mapping[str, Any]) -> tuple[str, int | None]:
    message = string(found.get("message")) or "an error without a message"
    for name in ("code", "type", "error_type"):
        said = found.get(name)
        if isinstance(said, str) and said in wordings.TELLING_CODES and said not in message:
            message = f"{message} ({said})"
    return message, whole_number(found.get("code"))


def said_in(choices: Any) -> tuple[str, str]:
    """(text, why it ended) of all choices of a payload. A refusal of its own field ends as "refusal"."""
    text, finish = "", ""
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            finish = reason
        text += spoken(choice)
        for name in ("delta", "message"):
            if name in choice and isinstance(choice[name], dict):
                said, refusal = choice[name], string(choice[name].get("refusal"))
                text += spoken(said) + refusal
                finish = "refusal" if refusal else finish
    return text, finish


def spoken(holder: Mapping[str, Any]) -> str:
    """The text in one choice, delta or message, reasoning first. Spelled out: it is asked of every frame."""
    text = ""
    if "reasoning_content" in holder:
        text += string(holder["reasoning_content"])
    if "reasoning" in holder:
        text += string(holder["reasoning"])
    if "text" in holder:
        text += string(holder["text"])
    if "content" in holder:
        text += _parts(holder["content"])
    if "tool_calls" in holder:
        text += _tool_arguments(holder["tool_calls"])
    if "function_call" in holder and isinstance(holder["function_call"], dict):
        text += string(holder["function_call"].get("arguments"))
    return text


def _parts(content: Any, depth: int = 0) -> str:
    """The text of a content: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict) and depth < DEEPEST_PART:
        return "".join(_parts(content[name], depth + 1) for name in PART_TEXTS if name in content)
    if isinstance(content, list) and depth < DEEPEST_PART:
        return "".join(_parts(part, depth + 1) for part in content)
    return ""


def _tool_arguments(calls: Any) -> str:
    functions = (
        [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    )
    return "".join(string(function.get("arguments")) for function in functions if isinstance(function, dict))


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""
