"""Counts prompt tokens against their ceilings and refuses prompts that need consent."""

from __future__ import annotations

from dataclasses import dataclass

from kvaudit.auditor.checks.prober_protocol import Limits, Stop

CONSENT_MARGIN = 8
"""Prompts of N - 8 tokens and more can wedge a server whose pool is smaller than its context: one
2,047-token prompt silenced a whole vLLM 0.27 while /health said 200 (vllm.md 0)."""

SHORT = 1024
"""Tokens that no limit this tool was built for refuses; they need no consent while N is unknown."""


@dataclass(slots=True)
class TokenUsage:
    """Requests sent, and prompt tokens that the engine accepted. ``ceiling`` holds per check (from
    `begin` on), ``left`` for everything that may still be sent to the deployment today."""

    requests: int = 0
    prompt_tokens: int = 0
    ceiling: int | None = None
    left: int | None = None
    silent: int = 0  # tokens of the prompt beside which a short request is silent now; 0 = none
    _before: int = 0

    def note_silence(self, tokens: int) -> None:
        """Whoever keeps the run looks here: a worker that dies meanwhile must not send that prompt again."""
        self.silent = tokens

    def begin(self) -> None:
        """A new check: its ceiling counts from here."""
        self._before = self.prompt_tokens

    @property
    def allowed(self) -> int | None:
        """What a whole check may spend, as of its beginning; None = no ceiling."""
        left = None if self.left is None else max(0, self.left - self._before)
        known = [ceiling for ceiling in (self.ceiling, left) if ceiling is not None]
        return min(known, default=None)

    def check(self, tokens: int) -> None:
        """`Stop` when a prompt of this length could exceed the ceiling."""
        used = self.prompt_tokens - self._before
        if self.ceiling is not None and used + tokens > self.ceiling:
            raise Stop(
                f"The budget of {self.ceiling:,} prompt tokens for one check is used up after {used:,}; "
                "raise it, or accept fewer rounds and a wider bound."
            )
        if self.left is not None and self.prompt_tokens + tokens > self.left:
            raise Stop(
                f"The deployment's daily ceiling is reached: {self.left:,} prompt tokens were left and "
                f"{self.prompt_tokens:,} are used."
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
