"""The one status: a table of what may be on record, and the tier, the sentence and the next step that follow."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus
from kvaudit.server.audits.state.tiers import MEANS, Facts, NextStep, Tier, assess, tier_of


def failing(check: str, severity: str = "critical", run: int | None = 7) -> CheckNow:
    summary = f"{check} says so."
    return CheckNow(check, Verdict.FAIL, Verdict.FAIL, severity=severity, summary=summary, run_id=run)


RUN = NextStep("Run the checks", "/d/chat/checks/")
CASES: list[tuple[str, dict[str, Any], Tier, str, NextStep | None]] = [
    ("all is well", {}, Tier.OK, MEANS[Tier.OK], None),
    ("well, and an incident is closed over it", {"incident": 3}, Tier.OK, MEANS[Tier.OK], None),
    (
        "foreign text",
        {"failing": [failing("canary")]},
        Tier.LEAK,
        "Another tenant's text or state was shown by canary.",
        NextStep("See what failed", "/runs/7/#check-canary"),
    ),
    (
        "a cache that answers strangers is another tenant's state",
        {"failing": [failing("prefix", run=8), failing("pool")]},
        Tier.LEAK,
        "Another tenant's text or state was shown by prefix; also failing: pool.",
        NextStep("See what failed", "/runs/8/#check-prefix"),
    ),
    (
        "an incident is the next step",
        {"failing": [failing("canary")], "incident": 3},
        Tier.LEAK,
        "Another tenant's text or state was shown by canary.",
        NextStep("Open incident 3", "/incidents/3/"),
    ),
    (
        "the canary's boundary fails, and no foreign text came",
        {"failing": [failing("canary", "high")]},
        Tier.UNSAFE,
        "Failing: canary.",
        NextStep("See what failed", "/runs/7/#check-canary"),
    ),
    (
        "a small pool is no leak, however grave",
        {"failing": [failing("pool"), failing("exposure", "high", 9)], "missing": ["canary"]},
        Tier.UNSAFE,
        "Failing: pool, open endpoints.",
        NextStep("See what failed", "/runs/7/#check-pool"),
    ),
    (
        "what failed left no run",
        {"failing": [failing("pool", run=None)]},
        Tier.UNSAFE,
        "Failing: pool.",
        RUN,
    ),
    (
        "several nodes, one check",
        {"failing": [failing("pool"), failing("pool", run=8)]},
        Tier.UNSAFE,
        "Failing: pool.",
        NextStep("See what failed", "/runs/7/#check-pool"),
    ),
    (
        "never ran",
        {"missing": ["canary", "rejection"]},
        Tier.NOT_VERIFIED,
        "Required checks have never all run: canary, rejection.",
        RUN,
    ),
    ("expired", {"expired": ["pool"]}, Tier.NOT_VERIFIED, "Expired: pool.", RUN),
    ("error", {"errors": ["version"]}, Tier.NOT_VERIFIED, "Could not be carried out: version.", RUN),
    ("undecided", {"undecided": ["drift"]}, Tier.NOT_VERIFIED, "Not decided: drift.", RUN),
    (
        "it failed, and its later tests could not be done: said once",
        {"undecided": ["prefix"], "unrefuted": ["prefix"]},
        Tier.NOT_VERIFIED,
        "Failed, nothing shown since: prefix.",
        RUN,
    ),
    (
        "several, the worst first",
        {"missing": ["a", "b", "c", "d", "e", "f"], "errors": ["version"], "incident": 4},
        Tier.NOT_VERIFIED,
        "Required checks have never all run: a, b, c, d and 2 more; could not be carried out: version.",
        NextStep("Open incident 4", "/incidents/4/"),
    ),
    ("nothing at all", {"verified": False}, Tier.NOT_VERIFIED, "No check has concluded anything.", RUN),
]


@pytest.mark.parametrize(
    ("given", "tier", "reason", "step"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_follows(given: dict[str, Any], tier: Tier, reason: str, step: NextStep | None) -> None:
    verified = given.get("verified", not set(given) - {"incident"})
    said = assess(Facts("chat", **{**given, "verified": verified}))
    assert (said.tier, said.reason, said.next_step) == (tier, reason, step)
    assert bool(said.detail) == bool(given.get("failing"))


def test_shown_comes_before_what_could_happen() -> None:
    facts = Facts("chat", failing=[failing("pool"), failing("prefill", "high"), failing("rejection", "high")])
    assert assess(facts).detail == "pool says so."
    both = Facts("chat", failing=[failing("exposure", "high"), failing("rejection", "high")])
    assert assess(both).detail == "rejection says so."


@pytest.mark.parametrize(
    ("verdict", "leaking", "tier"),
    [
        (Verdict.FAIL, True, Tier.LEAK),
        (Verdict.FAIL, False, Tier.UNSAFE),
        (Verdict.ERROR, False, Tier.NOT_VERIFIED),
        (Verdict.INCONCLUSIVE, False, Tier.NOT_VERIFIED),
        (Verdict.PASS, False, Tier.OK),
    ],
)
def test_the_tier_alone(verdict: Verdict, leaking: bool, tier: Tier) -> None:
    from django.utils import timezone

    status = DeploymentStatus(timezone.now(), verdict, False, (), (), leaking=leaking)
    assert tier_of(status) is tier
