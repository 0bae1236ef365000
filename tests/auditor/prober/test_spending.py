"""Ceilings and consent."""

from __future__ import annotations

import pytest

from kvaudit.auditor.checks.prober_protocol import Limits, Stop
from kvaudit.auditor.prober.spending import TokenUsage, needs_consent, refuse_without_consent

DANGEROUS = Limits(5_322, 8_192, 5_328, 16)
SAFE = Limits(8_186, 8_192, 16_384, 16)
UNKNOWN = Limits(None, 8_192, None, 16)


@pytest.mark.parametrize(
    ("limits", "tokens", "needed"),
    [
        (DANGEROUS, 5_313, False),
        (DANGEROUS, 5_314, True),
        (DANGEROUS, 9_000, True),
        (SAFE, 8_186, False),
        (SAFE, 9_000, False),
        (UNKNOWN, 1_024, False),
        (UNKNOWN, 1_025, True),
        (Limits(5_322, None, 5_328, 16), 5_314, True),
        (Limits(5_322, 8_192, None, 16), 5_314, True),
    ],
)
def test_consent_belongs_to_lengths(limits: Limits, tokens: int, needed: bool) -> None:
    assert needs_consent(limits, tokens) is needed
    refuse_without_consent(limits, tokens, consent=True)
    if needed:
        with pytest.raises(Stop, match="needs consent"):
            refuse_without_consent(limits, tokens, consent=False)
    else:
        refuse_without_consent(limits, tokens, consent=False)


def test_the_ceiling_counts_per_check_and_the_daily_one_over_all() -> None:
    spent = TokenUsage(ceiling=1_000, left=1_500)
    spent.check(1_000)
    spent.prompt_tokens += 900
    with pytest.raises(Stop, match="1,000 prompt tokens for one check"):
        spent.check(101)
    spent.begin()
    spent.check(600)
    with pytest.raises(Stop, match="daily ceiling"):
        spent.check(601)
    assert spent.allowed == 600


@pytest.mark.parametrize(
    ("ceiling", "left", "allowed"),
    [(None, None, None), (10, None, 10), (None, 20, 20), (10, 20, 10), (30, 20, 20)],
)
def test_what_a_check_may_spend(ceiling: int | None, left: int | None, allowed: int | None) -> None:
    assert TokenUsage(ceiling=ceiling, left=left).allowed == allowed
