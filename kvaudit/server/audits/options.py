"""Numbers of the scheduler, each overridable in settings as ``AUDIT_<NAME>`` (tests shorten them)."""

from __future__ import annotations

from django.conf import settings


def _number(name: str, default: float) -> float:
    return float(getattr(settings, f"AUDIT_{name}", default))


def lease_seconds() -> float:
    """How long a worker may be silent before its runs are given to another."""
    return _number("LEASE_SECONDS", 60)


def heartbeat_seconds() -> float:
    """How often a worker renews its leases, tells progress and looks for cancellations."""
    return _number("HEARTBEAT_SECONDS", min(2.0, lease_seconds() / 4))


def resend_seconds() -> float:
    """After how long a queued run is sent again (the message may have been lost with the broker); doubles with
    every time."""
    return _number("RING_AGAIN_SECONDS", 60)


def shortest_expiry_seconds() -> float:
    """A queued run waits at least this long for a worker, however short its plan's interval."""
    return _number("SHORTEST_EXPIRY_SECONDS", 120)


def beat_seconds() -> float:
    """How often what is due is looked for; no plan can be kept more often than that."""
    return _number("BEAT_SECONDS", 15)


def retry_delay_seconds() -> float:
    """An inconclusive is re-run once after this (checks.md, Verdicts)."""
    return _number("RETRY_DELAY_SECONDS", 900)


def overdue_seconds(period: float) -> float:
    """How late a scheduled run may be before somebody is told: half its period, 2 minutes to 1 hour."""
    return min(max(period / 2, _number("SHORTEST_OVERDUE_SECONDS", 120)), 3600.0)


def daily_prompt_tokens() -> int | None:
    """Prompt tokens that one deployment may be sent within 24 hours; None: it follows from the context."""
    given = getattr(settings, "AUDIT_DAILY_PROMPT_TOKENS", None)
    return None if given is None else int(given)


PASSIVE_BATCH = 50
"""Runs that one passive task takes at most."""

MOST_ATTEMPTS = 2
"""A lapsed lease is retried once."""


def evidence_days() -> float:
    """How long stored bodies of runs that did not fail are kept (`evidence.retention`); 0: for good."""
    return _number("EVIDENCE_DAYS", 400)
