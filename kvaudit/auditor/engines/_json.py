"""Reads JSON that a stranger wrote, safely: nothing here raises, nothing here recurses.

orjson refuses NaN, invalid UTF-8 and nesting beyond its limit by raising; the parsers that follow
look at fixed places of the tree only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kvaudit.auditor.engines.answers import Answer, Answers
from kvaudit.auditor.readings import Reading, read, unknown

LONGEST_LIST = 4096
"""More ranks, cards or workers than this are not a list of ranks, cards or workers."""

OWN_ADDRESS = "(the node's own address)"
"""How the path "" is shown: a generic pool may be read at its base URL."""


def parsed(answer: Answer | None) -> Any:
    """The JSON value of a 200 answer; None when there is no answer or it is no JSON."""
    if answer is None or answer.status != 200:
        return None
    try:
        return orjson.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> Mapping[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """The value when it is a JSON array of at most `LONGEST_LIST` items, else an empty one."""
    return value if isinstance(value, list) and len(value) <= LONGEST_LIST else ()


def ok(answers: Answers, path: str) -> bool:
    answer = answers.get(path)
    return answer is not None and answer.status == 200


def status(answers: Answers, path: str) -> int:
    """The status of an answer; 0 when it was not asked or did not come."""
    answer = answers.get(path)
    return answer.status if answer is not None else 0


def why_not(answers: Answers, *paths: str) -> str:
    """Why none of these paths brought anything: "GET /metrics answered 404"."""
    said = []
    for path in paths:
        answer = answers.get(path)
        if answer is None:
            continue
        asked = f"GET {path or OWN_ADDRESS}"
        if answer.problem:
            said.append(f"{asked}: {label(answer.problem, 300)}")
        elif answer.status == 200:
            said.append(f"{asked} answered 200 without the expected content")
        else:
            said.append(f"{asked} answered {answer.status}")
    return "; ".join(said) or f"{' and '.join(f'GET {path}' for path in paths)} not asked"


def digest(value: object) -> str:
    """16 hex digits that name a JSON value, whatever the order of its keys; "" when too deep."""
    try:
        body = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(body).hexdigest()[:16]


def label(value: object, longest: int = 60) -> str:
    """A stranger's text for use in a name or a sentence: short, and without control characters."""
    shown = value if isinstance(value, str) else repr(value)[: longest + 1]
    clean = "".join(letter if letter.isprintable() else "?" for letter in shown[: longest + 1])
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def setting(value: object, source: str) -> Reading[Any]:
    """A configuration value as it is compared between two readings: a scalar, or a list of scalars
    as comma-separated text. Null is unknown ("not set")."""
    if value is None:
        return unknown(f"{source} is null or absent")
    if isinstance(value, list):
        if len(value) <= LONGEST_LIST and all(isinstance(item, (int, float, str)) for item in value):
            return read(_shown(",".join(str(item) for item in value), value), source)
        return unknown(f"{source} is no list of plain values")
    if isinstance(value, str):
        return read(_shown(value, value), source)
    if isinstance(value, (bool, int, float)):
        return read(value, source)
    return unknown(f"{source} is no plain value")


def _shown(text: str, value: object) -> str:
    return text if len(text) <= 300 and text.isprintable() else f"digest {digest(value)}"
