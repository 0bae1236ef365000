"""Rows for page tests: runs, results and states as the auditor would have left them.

Written straight into the tables: what pages show must not depend on how a worker gets there.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from kvaudit.auditor.verdict import roll_up
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.models import CheckState, Evidence, Plan, Result, Run, RunEvidence
from kvaudit.server.audits.state import intervals
from kvaudit.server.audits.state.deployment_status import required_checks
from kvaudit.server.fleet.models import Deployment, FingerprintChange, Node, NodeSnapshot
from tests.factories import a_deployment, a_node
from tests.recorded import recorded

PASSIVE = ("pool", "version", "drift", "exposure")
REQUIRED = required_checks(PASSIVE)
"""Everything that must pass before a deployment does, in a build with more checks too."""

SHORT_POOL = {
    "pool_tokens": 681_280,
    "context_tokens": 1_048_576,
    "reachable_tokens": 681_274,
    "headroom": 1.25,
    "danger_zone": [681_274, 1_048_570],
    "full_context_requests": 0,
    "nodes": [
        {"node": "prefill-0", "role": "prefill", "pool": 681_280, "limit": 681_274},
        {"node": "decode-0", "role": "decode", "pool": 2_040_000, "limit": 1_048_570},
    ],
}
LARGE_POOL = {
    "pool_tokens": 2_040_000,
    "context_tokens": 1_048_576,
    "reachable_tokens": 1_048_570,
    "headroom": 1.25,
    "danger_zone": None,
    "full_context_requests": 1,
    "nodes": [{"node": "prefill-0", "role": "prefill", "pool": 2_040_000, "limit": 1_048_570}],
}

SUMMARIES: Mapping[tuple[str, str], str] = {
    (
        "pool",
        "fail",
    ): "Prompts of 681,274 to 1,048,569 tokens are accepted but do not fit the prefill pool of "
    "681,280 tokens: they reach the rejection path that leaks.",
    ("pool", "pass"): "The pool of 2,040,000 tokens holds the context of 1,048,576 with the wanted headroom.",
    (
        "pool",
        "inconclusive",
    ): "The pool is not exposed by decode-0: /server_info answers without a token capacity.",
    ("pool", "error"): "prefill-0 refused the connection, so nothing was read.",
    ("version", "fail"): "sglang 0.5.19 is below the pin >=0.5.22.",
    ("version", "pass"): "sglang 0.5.22 meets its pin, and no listed advisory matches.",
    ("drift", "pass"): "No capacity change since the gate last ran.",
    ("exposure", "pass"): "Nothing that should be closed answers without a key.",
}


def a_run(
    deployment: Deployment,
    verdicts: Mapping[str, str] | None = None,
    *,
    at: datetime | None = None,
    measures: Mapping[str, Any] | None = None,
    bodies: Sequence[bytes] = (),
    state: str = "finished",
    **fields: Any,
) -> Run:
    """A run with a result for each of ``verdicts``; ``bodies`` are kept as its evidence."""
    at = at or timezone.now()
    ended = state in ("finished", "cancelled")
    found = dict(verdicts or {})
    run = Run.objects.create(
        deployment=deployment,
        kind="passive",
        trigger=fields.pop("trigger", "manual"),
        checks=fields.pop("checks", list(found) or list(PASSIVE)),
        state=state,
        verdict=roll_up(found.values()) if ended else None,
        attempt=0 if state in ("queued", "missed") else 1,
        created_at=at,
        started_at=None if state in ("queued", "missed") else at,
        finished_at=at if ended else None,
        expires_at=at + timedelta(hours=1),
        **fields,
    )
    evidence = [keep(run, body) for body in bodies]
    for check, verdict in found.items():
        Result.objects.create(
            run=run,
            deployment=deployment,
            attempt=1,
            check_id=check,
            verdict=verdict,
            severity="critical" if verdict == "fail" else "",
            summary=SUMMARIES.get((check, verdict), f"{check} came to {verdict}."),
            measures=dict(measures or {}) if check == "pool" else {},
            next_step=""
            if verdict == "pass"
            else "Raise the pool above headroom times context, then audit again.",
            does_not_prove="It says nothing about nodes that are not listed.",
            evidence=evidence if check == "pool" else [],
            observed_at=at,
        )
    return run


def keep(run: Run, body: bytes, source: str = "GET http://prefill-0:30000/server_info") -> dict[str, str]:
    """Store a body as evidence of the run; returns the line that a result cites."""
    digest = hashlib.sha256(body).hexdigest()
    row, _ = Evidence.objects.get_or_create(
        sha256=digest,
        defaults={"content_type": "application/json", "size": len(body), "body": zlib.compress(body)},
    )
    RunEvidence.objects.create(run=run, evidence=row, kind="response", source=source, node_name="prefill-0")
    return {"kind": "response", "sha256": digest, "source": source}


def a_state(
    deployment: Deployment,
    verdicts: Mapping[str, str],
    *,
    since: datetime | None = None,
    expired: bool = False,
    measures: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Run:
    """A finished run, and open states that say what it found."""
    now = timezone.now()
    run = a_run(deployment, verdicts, at=now - timedelta(minutes=3), measures=measures, **fields)
    recorded(run)
    for result in run.results.all():
        low, high = intervals.zone_of(result) or (None, None)
        CheckState.objects.create(
            deployment=deployment,
            check_id=result.check_id,
            verdict=result.verdict,
            severity=result.severity,
            summary=result.summary,
            since=since or now - timedelta(days=2),
            last_confirmed=result.observed_at,
            expires_at=now - timedelta(minutes=1) if expired else result.observed_at + timedelta(days=7),
            run=run,
            result=result,
            zone_low=low,
            zone_high=high,
        )
    return run


def reading(value: Any, source: str = "GET /server_info", state: str = "read") -> dict[str, Any]:
    return {"value": value, "source": source, "state": "unknown" if value is None else state}


def a_snapshot(
    node: Node, *, version: str = "0.5.22", pool: int | None = 2_040_000, **facts: Any
) -> NodeSnapshot:
    """What the node said a moment ago."""
    now = timezone.now()
    stored = {
        "engine": "sglang",
        "kind": "node",
        "version": reading(version or None),
        "model": reading("example/chat-large", "GET /v1/models id"),
        "context": reading(1_048_576, "GET /v1/models max_model_len"),
        "pool": reading(pool, "GET /v1/loads loads[].max_total_num_tokens"),
        "input_limit": reading(None, "max_req_input_len is absent"),
        "role": reading(node.role or None, "internal_states[].disaggregation_mode"),
        "process": reading(None, "no start time is exposed"),
        "ranks": [{"rank": "0", "pool": reading(pool), "sliding_window": None}],
        "settings": {"page_size": reading(64), "quantization": reading("fp8")},
        "notes": ["The pool is drawn anew at every start."],
        **facts,
    }
    return NodeSnapshot.objects.create(
        node=node,
        first_seen=now - timedelta(days=3),
        last_confirmed=now - timedelta(minutes=3),
        engine="sglang",
        version=version,
        role=node.role,
        pool=pool,
        context=1_048_576,
        digest="0123456789abcdef",
        content=hashlib.sha256(f"{node.pk}{version}{pool}".encode()).hexdigest(),
        facts=stored,
        fingerprint={},
        reference={},
    )


def a_change(
    node: Node, *, significant: bool = True, diff: Sequence[Mapping[str, Any]] = ()
) -> FingerprintChange:
    return FingerprintChange.objects.create(
        deployment=node.deployment,
        node=node,
        at=timezone.now() - timedelta(hours=5),
        significant=significant,
        summary=f"{node.name}: pool moved",
        before={},
        after={},
        diff=list(diff)
        or [{"name": "pool", "before": 2_040_000, "after": 681_280, "significant": significant},
            {"name": "version", "before": "0.5.22", "after": "0.5.19", "significant": True}],
    )  # fmt: skip


def a_plan(
    *deployments: Deployment, name: str = "hourly", checks: Sequence[str] = PASSIVE, **fields: Any
) -> Plan:
    fields.setdefault("interval", None if fields.get("cron") else 3_600)
    plan = Plan.objects.create(
        name=name,
        kind="passive",
        checks=list(checks),
        next_due=fields.pop("next_due", timezone.now() + timedelta(minutes=40)),
        **fields,
    )
    plan.deployments.set(deployments)
    return plan


def a_pair(slug: str, *, team: Team, version: str = "0.5.22", pool: int = 2_040_000) -> Deployment:
    """A disaggregated deployment with a prefill and a decode node, both read."""
    deployment = a_deployment(
        slug, team=team, engine="sglang", model="example/chat-large", context=1_048_576, owner="Ada Example"
    )
    prefill = a_node(
        deployment, "prefill-0", role="prefill", url=f"http://{slug}-prefill-0.example.internal:30000"
    )
    decode = a_node(
        deployment, "decode-0", role="decode", url=f"http://{slug}-decode-0.example.internal:30000"
    )
    a_snapshot(prefill, version=version, pool=pool)
    a_snapshot(decode, version=version, pool=2_040_000)
    return deployment


def a_fleet(team: Team, count: int) -> list[Deployment]:
    """``count`` deployments that stand in every way there is, in a fixed mixture."""
    made = []
    for number in range(count):
        kind = number % 7
        deployment = a_pair(
            f"chat-{number:03d}", team=team, version="0.5.19" if kind == 0 else "0.5.22",
            pool=681_280 if kind == 0 else 2_040_000,
        )  # fmt: skip
        everything = dict.fromkeys(REQUIRED, "pass")
        if kind == 0:
            a_state(deployment, {**everything, "pool": "fail", "version": "fail"}, measures=SHORT_POOL)
        elif kind == 1:
            a_state(deployment, {**everything, "pool": "inconclusive"}, measures={"pool_tokens": None})
        elif kind == 2:
            a_state(deployment, {**everything, "pool": "error"})
        elif kind == 3:
            a_state(deployment, everything, expired=True, measures=LARGE_POOL)
        elif kind != 4:
            a_state(deployment, everything, measures=LARGE_POOL)
        made.append(deployment)
    a_plan(*made)
    return made


def as_user(client: Any, user: User) -> Any:
    """The test client, logged in."""
    client.force_login(user)
    return client
