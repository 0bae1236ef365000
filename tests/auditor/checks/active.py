"""Trials, limits and a lab in memory, for the tables and the observations of the active checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvaudit.auditor import checks as registry
from kvaudit.auditor.checks.contract import Audit, History, Rules
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.prober import NetworkProber, Permission, TokenUsage, prober_for
from kvaudit.auditor.runner.reading import read_node
from kvaudit.auditor.targets import Credentials, Node, Target, Tenant
from kvaudit.auditor.verdict import Result
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import in_process

A, B = "tenant-a", "tenant-b"
N, C, PAGE = 5_322, 8_192, 16
LIMITS = Limits(N, C, 5_328, PAGE, True, unified=False)
ROOMY = Limits(8_186, C, 11_040, PAGE, True, unified=False)

ANSWERED, EMPTY, CUT, REFUSED = Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT, Outcome.REFUSED
FAILED, BUSY, TIMED_OUT, BROKEN = Outcome.FAILED, Outcome.BUSY, Outcome.TIMED_OUT, Outcome.BROKEN
TOO_LARGE, UNANSWERED, DENIED = Outcome.TOO_LARGE, Outcome.UNANSWERED, Outcome.DENIED

_COUNTED = (ANSWERED, EMPTY, CUT)
_STATUS = {REFUSED: 400, FAILED: 500, BUSY: 503, TOO_LARGE: 413, UNANSWERED: 400, DENIED: 401}


def seen_as(name: str, tokens: int, outcome: Outcome = ANSWERED, **more: Any) -> Trial:
    """A trial; an answer gives its nonce and is counted right unless it is said otherwise."""
    usual: dict[str, Any] = {"tenant": A, "status": _STATUS.get(outcome, 200)}
    if outcome is ANSWERED:
        usual["nonce"] = True
    if outcome in _COUNTED:
        usual |= {"prompt_tokens": tokens, "cached_tokens": 0}
    return Trial(name, tokens, outcome=outcome, **{**usual, **more})


def audit(history: History | None = None, rules: Rules | None = None, why: str = "") -> Audit:
    return Audit("glm", [], rules=rules or Rules(), history=history, why_no_prober=why)


def judged(check: str, seen: Any, **more: Any) -> Result:
    """The verdict over an observation."""
    result: Result = registry.get(check).judge(seen, audit(**more))
    assert result.check == check
    return result


def nothing_asked(check: str, why: str = "") -> Result:
    """Observed and judged without anybody to ask as."""
    import asyncio

    found = registry.get(check)
    given = audit(why=why)
    result: Result = found.judge(asyncio.run(found.observe(given)), given)
    return result


def target_of(lab: Any, **more: Any) -> Target:
    config = lab.deployment.config
    nodes = tuple(
        Node(node.role, url, node.role) for node, url in zip(lab.deployment.nodes, lab.node_urls, strict=True)
    )
    tenants = tuple(
        Tenant(tenant.name, Credentials((("Authorization", f"Bearer {tenant.key}"),)))
        for tenant in config.tenants
    )
    return Target("lab", nodes, **{"entry": lab.entry, "model": config.model, "tenants": tenants, **more})


def in_lab(
    check: str,
    faults: Sequence[str] = ("none",),
    *,
    permission: Permission | None = None,
    history: History | None = None,
    target: dict[str, Any] | None = None,
    meddle: Any = None,
    **options: Any,
) -> tuple[Result, Any, NetworkProber]:
    """Observe and judge one check on the lab, on its virtual clock: the result, what was observed, and
    the prober. ``meddle(lab, prober)`` may change things before the check begins."""
    return run_virtual(_in_lab(check, faults, permission, history, target or {}, meddle, options))


async def _in_lab(
    check: str,
    faults: Sequence[str],
    permission: Permission | None,
    history: History | None,
    more: dict[str, Any],
    meddle: Any,
    options: dict[str, Any],
) -> tuple[Result, Any, NetworkProber]:
    async with in_process(LabConfig(**options), faults) as lab:
        with lab.joined():
            target = target_of(lab, **more)
            nodes = [await read_node(node) for node in target.nodes]
            given_permission = replace(permission or Permission(consent=True, seed=7), spent=TokenUsage())
            prober = await prober_for(target, nodes, given_permission)  # what was spent belongs to one run
            if meddle is not None:
                meddle(lab, prober)
            given = Audit("lab", nodes, rules=target.rules, history=history, prober=prober)
            found = registry.get(check)
            seen = await found.observe(given)
            result = found.judge(seen, given)
            await prober.aclose()
    return result, seen, prober
