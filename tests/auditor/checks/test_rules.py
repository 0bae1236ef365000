"""A verdict as ordered rules: the first that holds decides."""

from __future__ import annotations

import pytest

from kvaudit.auditor.checks.rejection.verdict import RULES
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import result_builder
from kvaudit.auditor.verdict import Verdict

ORDER: tuple[Rule[int], ...] = (
    Rule("negative", Verdict.ERROR, lambda n: "below zero" if n < 0 else "", "Count again."),
    Rule("large", Verdict.FAIL, lambda n: f"{n} is large" if n > 9 else "", lambda n: f"Take {n - 9}.", "high"),
    Rule("odd", Verdict.PASS, lambda n: "odd" if n % 2 else "", "Nothing.", warn=True),
)  # fmt: skip


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (-3, (Verdict.ERROR, "below zero", "Count again.", "", False)),
        (11, (Verdict.FAIL, "11 is large", "Take 2.", "high", False)),  # odd as well
        (7, (Verdict.PASS, "odd", "Nothing.", "", True)),
    ],
)
def test_the_first_rule_that_holds_decides(n: int, said: tuple[object, ...]) -> None:
    result = first_that_holds(ORDER, n, result_builder("pool", {}, "Anything.", []))
    assert (result.verdict, result.summary, result.next, result.severity, result.warn) == said


def test_no_rule_that_holds_is_a_defect() -> None:
    with pytest.raises(LookupError, match="negative, large, odd"):
        first_that_holds(ORDER, 4, result_builder("pool", {}, "Anything.", []))


def test_what_was_seen_comes_before_what_was_not() -> None:
    """A fail stands however the climb went on, and a pass comes last."""
    verdicts = [rule.verdict for rule in RULES if rule.verdict is not Verdict.ERROR]
    order = [Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS]
    assert verdicts == sorted(verdicts, key=order.index)
    assert len({rule.name for rule in RULES}) == len(RULES)
