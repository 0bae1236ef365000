"""A stage for audits without a network: deployments, runs, and a runner that says what a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils import timezone

from kvaudit.auditor import runner
from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import EngineFacts, read
from kvaudit.auditor.runner import CheckFinished, CheckStarted, NodeRead
from kvaudit.auditor.verdict import Evidence, Result, Verdict
from kvaudit.server.audits.models import Kind, Plan, Run, Trigger
from kvaudit.server.audits.schedule.plans import PlanSpec, create_plan
from kvaudit.server.fleet.models import Deployment
from tests.factories import a_deployment, a_node

PASSIVE = ("pool", "version", "drift", "exposure")


def facts(*, pool: int = 2_000_000, version: str = "0.5.22", **more: Any) -> EngineFacts:
    source = "GET /server_info"
    return EngineFacts(
        "sglang",
        version=read(version, source),
        pool=read(pool, source),
        context=read(1_048_576, source),
        **more,
    )


def result(check: str, verdict: Verdict = Verdict.PASS, summary: str = "", **more: Any) -> Result:
    return Result(check, verdict, summary or f"{check} says {verdict.value}", **more)


@dataclass
class FakeRunner:
    """The runner's understudy. ``says`` maps a check to a verdict or a Result (default: pass);
    ``facts`` is what every node answers, by slug; ``before`` is called at the start of a run."""

    says: dict[str, Verdict | Result] = field(default_factory=dict)
    facts: Mapping[str, EngineFacts] = field(default_factory=dict)
    bodies: Sequence[Evidence] = ()
    before: Callable[[Any, Callable[[], bool]], Any] | None = None
    when_cancelled: Verdict = Verdict.ERROR
    histories: list[Any] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    async def __call__(
        self,
        target: Any,
        checks: Any,
        *,
        budget: Any = None,
        history: Any = None,
        cancelled: Any = None,
        permission: Any = None,
    ) -> AsyncIterator[runner.Event]:
        self.ran.append(target.slug)
        self.histories.append(history)
        if self.before is not None:
            waited = self.before(target, cancelled)
            if waited is not None:
                await waited
        for node in target.nodes:
            seen = self.facts.get(target.slug, facts())
            yield NodeRead(NodeSeen(node.name, node.url, node.role, facts=seen, evidence=tuple(self.bodies)))
        for check in checks:
            if cancelled is not None and cancelled():
                said = "The run was cancelled before this was done."
                yield CheckFinished(result(check, self.when_cancelled, said))
                continue
            yield CheckStarted(check)
            said = self.says.get(check, Verdict.PASS)
            yield CheckFinished(said if isinstance(said, Result) else result(check, said))


def a_target(slug: str = "", **fields: Any) -> Deployment:
    """A deployment with one prefill node."""
    deployment = a_deployment(slug, **fields)
    a_node(deployment, "prefill-0", role="prefill")
    return deployment


def a_plan(*deployments: Deployment, checks: Sequence[str] = ("pool", "version"), **spec: Any) -> Plan:
    spec = {"name": "hourly", "interval": 3600, **spec}
    if "cron" in spec:
        spec["interval"] = None
    return create_plan(spec=PlanSpec(checks=checks, deployments=deployments, **spec), actor="system:tests")


def a_run(deployment: Deployment, *, checks: Sequence[str] = ("pool", "version"), **fields: Any) -> Run:
    now = timezone.now()
    fields = {
        "kind": Kind.PASSIVE,
        "trigger": Trigger.MANUAL,
        "not_before": now - timedelta(seconds=1),
        "expires_at": now + timedelta(hours=1),
        **fields,
    }
    return Run.objects.create(deployment=deployment, checks=list(checks), **fields)
