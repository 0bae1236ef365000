"""Says when sending more can only cost: a server that fails is fed no more, and what cannot be a pass any more is not
finished. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit.auditor.checks.asker import FAILURES
from kvaudit.auditor.checks.canary.seen import Asked
from kvaudit.auditor.checks.trials import FAILED, already_void, how_it_failed


def why_no_more(asked: Sequence[Asked], limit: int | None, planned: int) -> str:
    """The sentence, "" while more may be sent. Lengths from ``limit`` on are left out by themselves where they fail
    (`left_out`). Of the others three failures in a row are enough, among prompts at least as long as the shortest that
    failed: a server that runs out of memory at 4,000 tokens answers shorter ones between them."""
    below = [one.trial for one in asked if limit is None or one.trial.tokens < limit]
    if not below or below[-1].outcome.valid:
        return ""
    shortest = min((one.tokens for one in below if one.outcome in FAILED), default=0)
    last = [one for one in below if shortest and one.tokens >= shortest][-FAILURES:]
    if len(last) == FAILURES and all(one.outcome in FAILED for one in last):
        return (
            f"Stopped after {FAILURES} failures in a row of prompts of {shortest:,} tokens and more, the last at "
            f"{last[-1].tokens:,}: {how_it_failed(last[-1])}."
        )
    return already_void(below, planned)
