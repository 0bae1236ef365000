"""Offers five names to a Python program that audits: `load_fleet`, `Target`, `run`, `Result`, `Verdict`
(docs/library.md).

Everything else of the auditor may move between releases; these stay. No Django, no database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kvaudit.auditor import checks as registry
from kvaudit.auditor import runner
from kvaudit.auditor.targets import Target, from_file
from kvaudit.auditor.verdict import Result, Verdict

__all__ = ("Result", "Target", "Verdict", "load_fleet", "run")


def load_fleet(path: str | Path, *, deployment: str = "") -> tuple[Target, ...]:
    """The deployments of a fleet file (YAML or ``.csv``), or the one with this slug; keys come out of the environment.
    Raises `kvaudit.auditor.targets.TargetError`, a ValueError with one sentence for each problem."""
    return from_file(path, deployment=deployment)


def run(
    target: Target,
    checks: Sequence[str] = registry.where("read_at_gate"),
    *,
    seconds: float = 60.0,
    prompt_tokens: int | None = None,
) -> list[Result]:
    """Audit one deployment now and wait for it: one result for each check, in the order given.

    ``seconds`` is the deadline of the whole run; ``prompt_tokens`` the ceiling of each check that sends prompts (None:
    20 million, or 80 contexts where that is more). Prompts at the limit go out only where the target says ``consent``.
    A run that is cut short gives *error* or *inconclusive* results, never fewer. Raises ValueError for a check that
    does not exist. Inside an event loop, iterate over `kvaudit.auditor.runner.run` instead.
    """
    for check in checks:
        registry.describe(check)
    permission = None
    if any(check in registry.ACTIVE for check in checks):
        from kvaudit.auditor.prober import Permission  # a gate starts without what sends prompts

        permission = Permission(consent=target.consent, prompt_tokens=prompt_tokens)
    budget = runner.Budget(seconds=seconds)
    _, found = asyncio.run(runner.results(target, checks, budget=budget, permission=permission))
    return found
