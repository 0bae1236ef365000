"""Finds every way to send a prompt of known length that the target answers, and what it adds to prompts in each.

A gateway may serve chat and completions from different pools and releases: a fault of one is not seen in the other.
"""

from __future__ import annotations

from typing import Protocol

from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.engines.completion import Dialect, Mode
from kvaudit.auditor.prober.tokenizing import ATTEMPTS, RETRY_PAUSE
from kvaudit.auditor.text.markers import draw_marker
from kvaudit.auditor.text.prompts import draw_nonce

CALIBRATION = (256, 384)
"""Two lengths in tokens; the usage that the target reports must grow by exactly their difference."""

CALIBRATION_SECONDS = 30.0
MOST_ADDED = 4_000
"""Tokens of a template, or of a system prompt before every prompt. That both lengths grow by the same
tells it from a wrong count."""

_MAY_PASS = (Outcome.BUSY, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.BROKEN)
UNKNOWN_KEY = 401


class CannotAsk(Exception):
    """The target cannot be asked at all: something is missing, no way to send a prompt works, or
    (``denied``) a key is refused. ``needs`` says what to do; "" where entry or keys were not given."""

    def __init__(self, reason: str, *, denied: bool = False, needs: str = "") -> None:
        super().__init__(reason)
        self.denied, self.needs = denied, needs


class Forbidden(ValueError):
    """A known key may not use one way."""


class Calibrated(Prober, Protocol):
    """A prober whose ways to ask are being found."""

    dialect: Dialect
    mode: Mode | None
    modes: tuple[Mode, ...]
    templates: dict[tuple[Mode, str], int]


async def find_ways(prober: Calibrated) -> None:
    """Fill ``prober.modes`` with the ways that work for every tenant, the most exact first, and ``prober.templates``.
    Raises `CannotAsk` when none does; sends at most two short prompts per way and tenant."""
    problems: dict[Mode, ValueError] = {}
    found: list[Mode] = []
    for mode in prober.dialect.modes:
        prober.mode = mode
        try:
            for tenant in prober.tenants:
                prober.templates[mode, tenant] = await _added(prober, mode, tenant)
        except ValueError as problem:
            problems[mode] = problem
            continue
        except Stop:
            if not found:
                raise
            break
        found.append(mode)
    prober.modes, prober.mode = tuple(found), found[0] if found else None
    if not found:
        said = "; ".join(f"{mode.value}: {problem}" for mode, problem in problems.items())
        raise CannotAsk(
            f"No way to send a prompt of known length works. {said}.",
            denied=all(isinstance(problem, Forbidden) for problem in problems.values()),
            needs="Look at what the entry answered, correct its address or the model's name, then run it again.",
        )


async def _added(prober: Calibrated, mode: Mode, tenant: str) -> int:
    """Tokens beyond our own that the target counts; ValueError when its count cannot be trusted."""
    added = set()
    prober.templates[mode, tenant] = 0
    for tokens in CALIBRATION:
        reply = await _short(prober, mode, tenant, tokens)
        if reply.outcome is Outcome.DENIED:
            _refuse(reply, tenant)
        if not reply.valid or reply.outcome is Outcome.REFUSED:
            raise ValueError(reply.error or f"a prompt of {tokens} tokens ended as {reply.outcome.value}")
        if reply.prompt_tokens is None:
            raise ValueError("the target does not report how many tokens it read")
        added.add(reply.prompt_tokens - tokens)
    if len(added) != 1 or not 0 <= min(added) <= MOST_ADDED:
        raise ValueError(f"the target counts {sorted(added)} tokens more than were sent")
    return added.pop()


async def _short(prober: Calibrated, mode: Mode, tenant: str, tokens: int) -> Reply:
    """The answer to a short prompt, asked again while the reason that it failed for may pass."""
    marker = draw_marker(prober.draw)
    tail = draw_nonce(prober.draw, without=marker.words).tail
    prompt = await prober.framed(marker, tokens, tail, tenant=tenant, mode=mode)
    for attempt in range(ATTEMPTS):
        reply = await prober.ask(tenant, prompt, max_tokens=4, stream=True, seconds=CALIBRATION_SECONDS)
        if reply.outcome not in _MAY_PASS or attempt == ATTEMPTS - 1:
            break
        await prober.sleep(RETRY_PAUSE)
    return reply


def _refuse(reply: Reply, tenant: str) -> None:
    """`CannotAsk` for a key that is unknown; `Forbidden` for one that this way alone is forbidden to."""
    if reply.status != UNKNOWN_KEY:
        raise Forbidden(f"the key of tenant {tenant} is not allowed to use it ({reply.status})")
    raise CannotAsk(
        f"The entry refused the key of tenant {tenant} ({reply.status}): check the key.",
        denied=True,
        needs="Give a key that the entry takes, then run it again.",
    )
