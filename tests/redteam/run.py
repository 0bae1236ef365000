"""Audits a case in memory on the lab's virtual clock: no ports, no waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp

from kvaudit.auditor import runner
from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.targets import Credentials, Node, Target, Tenant
from kvaudit.auditor.transport.pool import in_memory
from kvaudit.lab.clock import run_virtual, wait
from kvaudit.lab.config import LabConfig, LabTenant
from kvaudit.lab.deployment import Deployment, with_options
from kvaudit.lab.inprocess import MemoryPool
from tests.redteam.case import Case, Lab
from tests.redteam.wanted import Found

ENTRY = 59_001
"""The gateway's port; nothing listens there, the addresses are only names."""

BEHIND = 59_100  # the first port of the labs, ten for each
SECONDS = 7_200.0
STARTED_APART = 60.0
"""Seconds between the starts of two labs: processes differ in when they began."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A lab and where its router and nodes are."""

    lab: Lab
    deployment: Deployment
    applications: Mapping[int, ASGIApp]

    @property
    def router(self) -> ASGIApp:
        return next(iter(self.applications.values()))

    @property
    def node_ports(self) -> list[int]:
        return list(self.applications)[1:]


def audit(case: Case) -> Found:
    """One audit of a case."""
    return run_virtual(_audit(case))


def unmet(case: Case, found: Found) -> str:
    """What a case did not bring out, "" when all is as wanted."""
    return "; ".join(filter(None, (rule.broken(found) for rule in case.rules)))


async def _audit(case: Case) -> Found:
    behind = [await _started(case, lab, number) for number, lab in enumerate(case.labs)]
    if case.before == "nodes":
        applications = [each.applications[port] for each in behind for port in each.node_ports]
    else:
        applications = [each.router for each in behind]
    gateway = case.gateway(applications, case.seed)
    for name, value in case.parameters.items():
        assert hasattr(gateway, name), f"{case.name}: the gateway has no parameter {name}"
        setattr(gateway, name, value)
    everything = {port: app for each in behind for port, app in each.applications.items()}
    token = in_memory.set(
        lambda base: MemoryPool({**everything, ENTRY: gateway.connected() if base.port == ENTRY else gateway})
    )
    try:
        results = await _results(case, behind)
    finally:
        in_memory.reset(token)
        for each in behind:
            await each.deployment.stop()
    return Found(
        {result.check: result for result in results},
        tuple(gateway.lengths),
        gateway.requests,
        gateway.prompt_tokens,
        tuple(gateway.secrets),
    )


async def _started(case: Case, lab: Lab, number: int) -> Behind:
    if number:
        await wait(STARTED_APART)
    tenants = tuple(
        LabTenant(f"tenant-{letter}", f"sk-lab-tenant-{letter}") for letter in "abcdef"[: case.tenants]
    )
    options = {"prefill_pool": 16_384, "seed": number, "tenants": tenants, **lab.options}
    deployment = Deployment(with_options(LabConfig(), **options), lab.faults)
    first = BEHIND + 10 * number
    for port, api in enumerate(deployment.apis, first + 1):
        api.port = port
    applications = dict(enumerate((app for _, app in deployment.applications()), first))
    return Behind(lab, deployment, applications)


async def _results(case: Case, behind: Sequence[Behind]) -> list:
    _, results = await runner.results(
        _target(case, behind),
        case.checks,
        budget=runner.Budget(seconds=SECONDS, prompt_tokens=case.prompt_tokens),
        permission=Permission(consent=True, seed=case.seed),
    )
    return results


def _target(case: Case, behind: Sequence[Behind]) -> Target:
    config = behind[0].deployment.config
    entry = f"http://127.0.0.1:{ENTRY}"
    if case.before == "nodes":
        nodes = [Node("node", entry)]
    else:
        known = [each for each in behind if each.lab.known]
        nodes = [
            Node(f"{node.role}-{port}", f"http://127.0.0.1:{port}", node.role)
            for each in known
            for node, port in zip(each.deployment.nodes, each.node_ports, strict=True)
        ]
    keys = [tenant.key for tenant in config.tenants]
    return Target(
        case.name,
        tuple(nodes),
        entry=entry,
        model=config.model,
        tenants=tuple(
            Tenant(
                tenant.name,
                Credentials((("Authorization", f"Bearer {keys[0] if case.one_key else tenant.key}"),)),
            )
            for tenant in config.tenants
        ),
        rules=Rules(conditions={}),
        complete=True,
        consent=True,
        entry_sets_salts=True,
    )
