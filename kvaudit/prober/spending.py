"""What may be sent: the token ceiling, consent near the limit, and whatever says stop."""

from __future__ import annotations

from dataclasses import dataclass

from kvaudit.checks.asking import Limits, Stop

CONSENT_MARGIN = 8
"""Prompts of N - 8 tokens and more can wedge a server whose pool is smaller than its context: one
2,047-token prompt silenced a whole vLLM 0.27 while /health said 200 (vllm.md 0)."""

SHORT = 1024
"""Tokens that no limit this tool was built for refuses; they need no consent while N is unknown."""


@dataclass(slots=True)
class Spent:
    """Requests sent, and prompt tokens that the engine accepted, against the run's ceiling."""

    requests: int = 0
    prompt_tokens: int = 0
    ceiling: int | None = None

    def check(self, tokens: int) -> None:
        """`Stop` when a prompt of this length could exceed the ceiling."""
        if self.ceiling is not None and self.prompt_tokens + tokens > self.ceiling:
            raise Stop(
                f"The budget of {self.ceiling:,} prompt tokens is used up after {self.prompt_tokens:,}; "
                "raise it, or accept fewer rounds and a wider bound."
            )


def needs_consent(limits: Limits, tokens: int) -> bool:
    """Whether a prompt of this length may be sent only with the deployment's consent (checks.md)."""
    if not limits.dangerous or tokens <= SHORT:
        return False
    return limits.first_rejected is None or tokens >= limits.first_rejected - CONSENT_MARGIN


def refuse_without_consent(limits: Limits, tokens: int, consent: bool) -> None:
    """`Stop` for a prompt that needs consent and has none."""
    if not consent and needs_consent(limits, tokens):
        raise Stop(
            f"A prompt of {tokens:,} tokens needs consent: the pool is smaller than the context or the limit "
            "is unknown, and such a prompt can stop a real server from answering anybody."
        )
