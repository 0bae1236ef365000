"""A prober out of a target and its readings: limits, ceilings, scope, and what is missing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvaudit.auditor.checks.contract import NodeSeen, Rules
from kvaudit.auditor.prober import CannotAsk, Permission, limits_of, prober_for
from kvaudit.auditor.prober.network import UNKNOWN_REPLICA
from kvaudit.auditor.prober.setup import default_ceiling
from kvaudit.auditor.targets import Credentials, Node, Target, Tenant
from tests.auditor.checks.active import in_lab
from tests.auditor.checks.audits import node

PREFILL = node("prefill", 681_280, settings={"page_size": 64})
DECODE = node("decode", 1_412_544, settings={"page_size": 64})


def facts(*nodes: NodeSeen) -> list[Any]:
    return [each.facts for each in nodes]


def test_the_smallest_limit_of_any_node_is_the_first_length_to_be_refused() -> None:
    limits = limits_of(facts(PREFILL, DECODE), Rules())
    assert (limits.first_rejected, limits.context, limits.page, limits.page_read) == (
        681_274,
        1_048_576,
        64,
        True,
    )
    assert (limits.pool, limits.largest_pool, limits.unified) == (681_280, 1_412_544, False)
    assert limits.dangerous
    assert limits.longest_safe == 681_274 - 128 - 128


@pytest.mark.parametrize(
    ("nodes", "rules", "first", "context", "dangerous"),
    [
        ([node("", 2_040_000)], Rules(), 1_048_570, 1_048_576, False),
        ([PREFILL, node("decode", None)], Rules(), None, 1_048_576, True),
        ([], Rules(), None, None, True),
        ([PREFILL], Rules(edge_limit=600_000), 600_001, 1_048_576, True),
        ([PREFILL], Rules(edge_limit=900_000), 681_274, 1_048_576, True),
        ([node("prefill", None)], Rules(edge_limit=600_000), 600_001, 1_048_576, True),
        ([node("", 2_040_000)], Rules(context=3_000_000), 1_048_570, 3_000_000, True),
    ],
)
def test_limits(
    nodes: list[NodeSeen], rules: Rules, first: int | None, context: int | None, dangerous: bool
) -> None:
    limits = limits_of(facts(*nodes), rules)
    assert (limits.first_rejected, limits.context, limits.dangerous) == (first, context, dangerous)


def test_a_page_that_nobody_shows_is_assumed_and_said_to_be() -> None:
    limits = limits_of(facts(node()), Rules())
    assert (limits.page, limits.page_read) == (64, False)


def test_the_default_ceiling() -> None:
    assert default_ceiling(limits_of(facts(node(context=8_192)), Rules())) == 20_000_000
    assert default_ceiling(limits_of(facts(PREFILL), Rules())) == 80 * 1_048_576


def target(**more: Any) -> Target:
    usual: dict[str, Any] = {
        "entry": "http://127.0.0.1:9",
        "model": "m",
        "tenants": (Tenant("A", Credentials()),),
    }
    return Target("glm", (Node("n", "http://127.0.0.1:9"),), **{**usual, **more})


@pytest.mark.parametrize(
    ("target", "nodes", "said"),
    [
        (target(tenants=()), [PREFILL], "No tenant's key"),
        (target(), [], "No node could be read"),
        (target(), [PREFILL, node("decode", engine="vllm")], "different engines"),
        (target(model=""), [NodeSeen("n", "u", facts=PREFILL.facts)], "The model's name"),
        (
            Target(
                "glm",
                (Node("a", "http://127.0.0.1:9"), Node("b", "http://127.0.0.1:8")),
                tenants=target().tenants,
            ),
            [PREFILL, DECODE],
            "no entry URL",
        ),
    ],
)
def test_what_is_missing_is_said(target: Target, nodes: list[NodeSeen], said: str) -> None:
    with pytest.raises(CannotAsk, match=said):
        asyncio.run(prober_for(target, nodes, Permission()))


def test_scope_and_ceilings_of_a_prober() -> None:
    permission = Permission(consent=True, seed=1, prompt_tokens=50_000, daily_left=9_000)
    _, _, prober = in_lab("accounting", permission=permission)
    assert prober.scope == UNKNOWN_REPLICA
    assert prober.rounds_ceiling == 9_000
    assert prober.spent.prompt_tokens <= 9_000


def test_a_node_asked_at_its_own_address_is_known() -> None:
    def entry(lab: Any, prober: Any) -> None:
        assert prober.scope == "the node unified alone"

    in_lab("accounting", ["healthy"], unified=True, target={"entry": ""}, meddle=entry)


def test_a_consent_of_the_deployment_is_enough() -> None:
    _, _, prober = in_lab("accounting", permission=Permission(), target={"consent": True})
    assert prober.consent
    _, _, prober = in_lab("accounting", permission=Permission())
    assert not prober.consent


def test_two_tenants_with_one_key_are_one_tenant() -> None:
    key = Credentials((("Authorization", "Bearer sk-1"),))
    target = Target("glm", (), tenants=(Tenant("a", key), Tenant("b", key)))
    with pytest.raises(CannotAsk, match="one and the same key") as raised:
        asyncio.run(prober_for(target, [], Permission()))
    assert raised.value.denied
