"""The shapes of drawings that the server builds: how one request ended, told apart without colour.

The symbols are drawn once a page: kit/shapes.html, and kit/request_shapes.html for "refused".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WITHOUT_NONCE, LEAK = "without nonce", "leak"


@dataclass(frozen=True, slots=True)
class Shape:
    """``symbol`` is the id of an SVG symbol, ``css`` gives its colour."""

    symbol: str
    css: str
    said: str


ANSWERED = Shape("shape-pass", "verdict-pass", "answered, with its own nonce")
REFUSED = Shape("shape-refused", "request-refused", "refused, with an error that names the length")
WRONG = Shape("shape-fail", "verdict-fail", "answered without its own nonce")
FAULTY = Shape("shape-error", "verdict-error", "empty, cut short, failed or too late")
VOID = Shape("shape-inconclusive", "verdict-inconclusive", "void: says nothing about the target")
UNASKED = Shape("shape-none", "verdict-none", "not asked")
LEAKED = Shape("shape-fail", "request-leak", "another request's marker surfaced in the answer")

_BY_OUTCOME: Mapping[str, Shape] = {
    "answered": ANSWERED,
    "refused": REFUSED,
    WITHOUT_NONCE: WRONG,
    **dict.fromkeys(("empty", "cut", "failed", "timed out", "hidden refusal"), FAULTY),
}


def shape_of(outcome: object) -> Shape:
    """The shape of a stored outcome; words of other releases are void, nothing is not asked."""
    return UNASKED if outcome is None else _BY_OUTCOME.get(str(outcome), VOID)
