"""A deployment with a long past, written straight into the tables: changes of verdict, of capacity and version,
expiries, pauses and windows, all from fixed numbers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from kvaudit.server.accounts.models import Team
from kvaudit.server.audits.models import CheckState, Result, Run, StateChange
from kvaudit.server.fleet.models import Deployment, FingerprintChange, Node, NodeSnapshot, Pause
from tests.factories import a_deployment, a_node
from tests.server.web import builders

CHECKS = ("pool", "version", "drift", "exposure", "rejection", "canary", "coherence", "prefill")
CYCLE = ("pass", "fail", "pass", "inconclusive", "pass", "error")


def prefill_measures() -> dict[str, Any]:
    """Eight lengths five times with some spread, and three judged: one honest, one too fast, one untestable."""
    a, b, c = 0.05, 2e-5, 3e-11
    fitted = [
        {
            "tokens": n, "uncached": n, "name": "fit",
            "seconds": round((a + b * n + c * n * n) * (1 + 0.02 * (repeat - 2)), 4),
        }
        for n in (256, 13_000, 45_000, 96_000, 168_000, 258_000, 368_000, 613_000)
        for repeat in range(5)
    ]  # fmt: skip
    judged = [
        {"name": "longest", "tokens": 681_273, "seconds": 27.1, "expected": 27.6, "ratio": 0.98, "z": -0.3,
         "testable": True, "too_fast": False, "nonce": True},
        {"name": "N", "tokens": 681_274, "seconds": 0.06, "expected": 27.6, "ratio": 0.002, "z": -120.0,
         "testable": True, "too_fast": True, "nonce": False},
        {"name": "midpoint", "tokens": 864_922, "seconds": 0.07, "expected": 40.0, "ratio": 0.002, "z": -130.0,
         "testable": False, "too_fast": False, "nonce": False},
    ]  # fmt: skip
    points = [
        {**{key: each[key] for key in ("name", "tokens", "seconds")}, "uncached": each["tokens"]}
        for each in judged
    ]
    return {
        "points": fitted + points,
        "fit": {"a": a, "b": b, "c": c, "sigma": 0.05},
        "judged": judged,
        "p5": None,
        "p5_note": "a p5 needs 59 requests per length bucket; it comes from production traffic",
    }


PREFILL = prefill_measures()


def a_past(
    slug: str,
    *,
    team: Team,
    changes: int = 60,
    days: int = 365,
    checks: tuple[str, ...] = CHECKS,
    **fields: Any,
) -> Deployment:
    """A deployment whose ``checks`` changed ``changes`` times in all, evenly over ``days`` up to an hour ago."""
    deployment = a_deployment(slug, team=team, engine="sglang", context=1_048_576, **fields)
    node = a_node(deployment, "prefill-0", role="prefill")
    now = timezone.now()
    start, step = now - timedelta(days=days), timedelta(days=days) / max(changes, 1)
    run = builders.a_run(
        deployment, {"pool": "fail"}, at=now - timedelta(hours=1), measures=builders.SHORT_POOL
    )
    result = run.results.get()
    last: dict[str, CheckState] = {}
    states: list[CheckState] = []
    marks: list[StateChange] = []
    for number in range(changes):
        check, at = checks[number % len(checks)], start + step * number
        verdict = CYCLE[(number // len(checks)) % len(CYCLE)]
        before = last.get(check)
        if before is not None:
            before.closed_at = at
        last[check] = _state(deployment, check, verdict, at, run, result)
        states.append(last[check])
        marks.append(_change(deployment, check, before.verdict if before else "", verdict, at, run))
    for state in states:
        state.last_confirmed = max(state.since, (state.closed_at or now) - timedelta(minutes=5))
        state.expires_at = state.last_confirmed + timedelta(days=7)
    CheckState.objects.bulk_create(states)
    StateChange.objects.bulk_create(marks)
    _capacity(node, start, now)
    builders.a_run(deployment, {"prefill": "fail"}, at=now - timedelta(hours=2)).results.update(
        measures=PREFILL
    )
    Pause.objects.create(
        deployment=deployment, paused_by="Ada <b>", reason="load test", valid_from=now - timedelta(days=9),
        valid_to=now - timedelta(days=8),
    )  # fmt: skip
    return deployment


def _state(
    deployment: Deployment, check: str, verdict: str, at: datetime, run: Run, result: Result
) -> CheckState:
    return CheckState(
        deployment=deployment, check_id=check, verdict=verdict, summary=f"{check} came to {verdict}",
        since=at, last_confirmed=at, expires_at=at, run=run, result=result,
    )  # fmt: skip


def _change(
    deployment: Deployment, check: str, before: str, after: str, at: datetime, run: Run
) -> StateChange:
    return StateChange(
        at=at, deployment=deployment, run=run, what="verdict", check_id=check, before=before, after=after,
        summary=f"{check} came to {after}.",
    )  # fmt: skip


def a_snapshot(
    node: Node, since: datetime, until: datetime, pool: int | None, version: str, *, current: bool = True
) -> NodeSnapshot:
    content = f"{node.name} {since.isoformat()}"
    return NodeSnapshot.objects.create(
        node=node, first_seen=since, last_confirmed=until, current=current, engine="sglang", version=version,
        role=node.role, pool=pool, context=1_048_576, digest=content[-16:], content=content, facts={}, fingerprint={},
        reference={},
    )  # fmt: skip


def _capacity(node: Node, start: datetime, now: datetime) -> None:
    """Three pools: large, small since the middle, large again a month ago; the last two with a new version."""
    moments = (start, start + (now - start) / 2, now - (now - start) / 12, now)
    pools = (2_040_000, 681_280, 1_500_000)
    versions = ("0.5.18", "0.5.18", "0.5.22")
    for number, (pool, version) in enumerate(zip(pools, versions, strict=True)):
        a_snapshot(node, moments[number], moments[number + 1], pool, version, current=number == 2)
        if number:
            diff = [{"name": "pool", "before": pools[number - 1], "after": pool, "significant": True}]
            if version != versions[number - 1]:
                diff.append(
                    {"name": "version", "before": versions[number - 1], "after": version, "significant": True}
                )
            FingerprintChange.objects.create(
                deployment=node.deployment, node=node, at=moments[number], significant=True,
                summary=f"{node.name}: pool {pools[number - 1]:,} to {pool:,}", before={}, after={}, diff=diff,
            )  # fmt: skip
