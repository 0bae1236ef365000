"""A verdict as rules in order: the first that has something to say decides. A table of them shows at a glance what
comes before what, which nested conditions hide (docs/decisions/0019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvaudit.auditor.checks.trials import ResultBuilder
from kvaudit.auditor.verdict import Result, Verdict

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Seen]):
    """``sentence`` is asked whether the rule holds, and is the result's summary where it does; "" where it does not.
    It may rely on no earlier rule having held. ``next_step`` is what to do about it."""

    name: str
    verdict: Verdict
    sentence: Callable[[Seen], str]
    next_step: str | Callable[[Seen], str]
    severity: str = ""
    warn: bool = False


def first_that_holds(rules: Sequence[Rule[Seen]], seen: Seen, result: ResultBuilder) -> Result:
    """The result of the first rule that holds; the last one must hold always."""
    for rule in rules:
        if summary := rule.sentence(seen):
            step = rule.next_step if isinstance(rule.next_step, str) else rule.next_step(seen)
            return result(rule.verdict, summary, step, rule.severity, rule.warn)
    raise LookupError(f"none of {', '.join(rule.name for rule in rules)} holds")
