"""Prices active checks from what was read before, without a network: what a plan would send, before it is saved.

`probe --dry-run` asks the target and knows its ways in; here all are assumed, so that the price is rather too high.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvaudit.auditor import checks as registry
from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.serving import Role, Serving, Where
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.prober.setup import default_ceiling, limits_of
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.text.markers import Draw, seeded

LONGEST_ASSUMED = 1_048_576
"""Tokens of a context that nobody knows."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one check would send to one target: prompt tokens that the target accepts, as its budget allows."""

    check: str
    requests: int
    tokens: int
    note: str = ""


@dataclass(frozen=True)
class Unsent:
    """A prober as far as a price looks at it: it sends nothing."""

    tenants: tuple[str, ...]
    limits: Limits
    consent: bool
    rounds_ceiling: int | None
    serving: Serving
    draw: Draw = field(default_factory=lambda: seeded(0))
    modes: tuple[Mode, ...] = (Mode.COMPLETION_IDS, Mode.COMPLETION_TEXT, Mode.CHAT_TEXT)
    most_added: int = 0
    idle_allowance: float = 0.0
    entry_sets_salts: bool = False
    salts: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[tuple[Mode, str], int] = field(default_factory=dict)

    def room(self, prompt_tokens: int, wanted: int) -> int:
        top = self.limits.context or self.limits.first_rejected
        return wanted if top is None else max(1, min(wanted, top - prompt_tokens))


def prices(
    checks: Sequence[str],
    nodes: Sequence[EngineFacts],
    rules: Rules,
    *,
    consent: bool,
    budget: int | None = None,
    where: Where = "production",
) -> list[Price]:
    """One for each check that sends prompts. ``budget``: prompt tokens that each may send; None = the default."""
    limits = limits_of(nodes, rules)
    ceiling = default_ceiling(limits) if budget is None else budget
    unsent: Any = Unsent(("tenant-a", "tenant-b"), limits, consent, ceiling, _serving(nodes, where))
    return [_price(check, unsent, ceiling) for check in checks if check in registry.ACTIVE]


def _price(check: str, unsent: Any, ceiling: int) -> Price:
    if check == "session":
        return Price(check, 0, 0, "as many as its description names")
    asking: Any = registry.get(check)
    plan = asking.plan(unsent)
    if unsent.limits.first_rejected is None:
        # `rejection` finds the limit, and the checks after it in the run use it.
        longest = unsent.limits.context or LONGEST_ASSUMED
        found = asking.plan(replace(unsent, limits=replace(unsent.limits, first_rejected=longest)))
        if found.prompt_tokens > plan.prompt_tokens:
            note = f"the limit is unknown, priced as {longest:,}"
            return Price(check, found.requests, min(found.prompt_tokens, ceiling), note)
    return Price(check, plan.requests, min(plan.prompt_tokens, ceiling), plan.note)


def _serving(nodes: Sequence[EngineFacts], where: Where) -> Serving:
    roles: dict[str, dict[int, int | None]] = {}
    for number, facts in enumerate(nodes):
        roles.setdefault(facts.role.value or "unified", {})[number] = facts.pool.value
    return Serving(tuple(Role(name, pools) for name, pools in roles.items()), where=where)
