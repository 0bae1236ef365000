"""What a plan would cost, from readings alone."""

from __future__ import annotations

from itertools import product

import pytest

from kvaudit.auditor import checks
from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.prober.pricing import prices
from kvaudit.auditor.readings import EngineFacts, read


def node(limit: int | None, *, pool: int | None = 2_000_000, context: int | None = None) -> EngineFacts:
    known = {
        name: read(value, "GET /server_info")
        for name, value in {"input_limit": limit, "pool": pool, "context": context or limit}.items()
        if value is not None
    }
    return EngineFacts("sglang", settings={"page_size": read(64, "GET /server_info")}, **known)


@pytest.mark.parametrize(
    ("limit", "consent", "where"),
    list(product((None, 600, 8_192, 131_072, 1_048_570), (True, False), ("production", "drained"))),
)
def test_every_check_that_sends_prompts_has_a_price(limit: int | None, consent: bool, where: str) -> None:
    found = prices(checks.MODULES, [node(limit)], Rules(), consent=consent, where=where)
    assert [each.check for each in found] == list(checks.ACTIVE)
    assert all(0 <= each.tokens <= max(20_000_000, 80 * (limit or 0)) for each in found)
    assert all(each.tokens or each.note for each in found)


def test_a_night_of_the_canary_at_a_million_tokens_costs_some_seven_contexts() -> None:
    (canary,) = prices(["canary"], [node(1_048_570, pool=1_100_000)], Rules(), consent=True)
    assert 5 * 1_048_570 < canary.tokens < 10 * 1_048_570


def test_a_budget_is_never_exceeded() -> None:
    full, small = (
        prices(["canary"], [node(131_072)], Rules(), consent=True, budget=budget)[0]
        for budget in (None, 3_000_000)
    )
    assert 0 < small.tokens <= 3_000_000 < full.tokens


@pytest.mark.parametrize(("context", "priced_as"), [(None, 1_048_576), (131_072, 131_072)])
def test_a_limit_that_nobody_knows_is_priced_as_the_context(context: int | None, priced_as: int) -> None:
    nodes = [] if context is None else [node(None, context=context)]
    rejection, canary = prices(["rejection", "canary"], nodes, Rules(), consent=True)
    assert f"unknown, priced as {priced_as:,}" in canary.note
    assert canary.tokens > priced_as
    assert "unknown" in rejection.note
