"""Loads a deployment out of the database as the `Target` that a run audits; the only place that opens keys."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from kvaudit.auditor.advisories import names
from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.targets import Credentials, Target
from kvaudit.auditor.targets import Node as TargetNode
from kvaudit.auditor.targets import Tenant as TargetTenant
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import SealBroken, unseal
from kvaudit.server.fleet import session_approval, session_plans
from kvaudit.server.fleet.key_origins import origins_of_node, origins_of_tenants
from kvaudit.server.fleet.models import Consent, Deployment, Node, Pause, Pin, Tenant
from kvaudit.server.fleet.pins import in_force
from kvaudit.server.fleet.sealed_headers import Headers, open_headers
from kvaudit.server.fleet.tls_files import tls_folder_of


def load_targets(deployments: Iterable[Deployment]) -> tuple[dict[int, Target], dict[int, str]]:
    """(deployment id -> target with all that a run needs, keys opened; deployment id -> why a node's key cannot be
    opened or was given for another address). Of tenants' keys that is the target's ``tenants_problem``; tenants without
    a key are left out: nothing can be asked in their name. Four queries, however many deployments, and one more where
    a session API is described."""
    wanted = list(deployments)
    ids = [deployment.pk for deployment in wanted]
    nodes: dict[int, list[Node]] = {pk: [] for pk in ids}
    for node in Node.objects.current().filter(deployment__in=ids):
        nodes[node.deployment_id].append(node)
    tenants: dict[int, list[Tenant]] = {pk: [] for pk in ids}
    with_key = Tenant.objects.current().filter(deployment__in=ids).exclude(credential_sealed="")
    for tenant in with_key:
        tenants[tenant.deployment_id].append(tenant)
    pins = list(Pin.objects.current().filter(Q(deployment=None) | Q(deployment__in=ids)))
    consenting = set(
        Consent.objects.current().filter(deployment__in=ids).values_list("deployment", flat=True)
    )
    held = session_approval.held_back(wanted)
    targets: dict[int, Target] = {}
    broken: dict[int, str] = {}
    for deployment in wanted:
        asked = origins_of_tenants(deployment, nodes[deployment.pk])
        able, problem = _tenants(tenants[deployment.pk], asked)
        try:
            targets[deployment.pk] = Target(
                slug=deployment.slug,
                nodes=tuple(_node(node, deployment) for node in nodes[deployment.pk]),
                entry=deployment.entry,
                model=deployment.model,
                tenants=able,
                tenants_problem=problem,
                rules=_rules(deployment, pins),
                complete=True,
                consent=deployment.pk in consenting,
                session=None if deployment.pk in held else session_plans.from_json(deployment.session),
                session_held=held.get(deployment.pk, ""),
                entry_sets_salts=deployment.entry_sets_salts,
            )
        except SealBroken as fault:
            broken[deployment.pk] = str(fault)
    return targets, broken


def rules_of(deployment: Deployment) -> Rules:
    """Policy for this deployment: its declared limits, and pins, where a deployment's pin replaces
    the fleet's of the same engine and that replaces the shipped one."""
    return _rules(deployment, Pin.objects.current().applying_to(deployment))


def _rules(deployment: Deployment, pins: Iterable[Pin]) -> Rules:
    held = in_force(list(pins), deployment.pk)
    return Rules(
        headroom=deployment.headroom,
        pins=tuple(held[engine].text for engine in sorted(held)),
        context=deployment.context,
        edge_limit=deployment.edge_limit,
        conditions=dict(deployment.conditions),
        disagg_buffer=deployment.disagg_buffer,
        components={_component(name): version for name, version in deployment.components.items()},
    )


def _component(name: str) -> str:
    """As advisories call it; rows that the release before wrote may hold the name of its package."""
    try:
        return names.component(name)
    except ValueError:  # the check version says that it decides nothing
        return name


def probes_paused(deployment: Deployment) -> bool:
    """Whether active checks of this deployment, or of the fleet, are paused now."""
    return Pause.objects.current().applying_to(deployment).exists()


def _node(node: Node, deployment: Deployment) -> TargetNode:
    engine = node.engine if node.engine not in ("", "auto") else deployment.engine
    return TargetNode(
        name=node.name,
        url=node.url,
        role=node.role,
        engine=engine or "auto",
        credentials=Credentials(
            headers=_headers(node, "headers_sealed", f"node {node.name}", origins_of_node(node)),
            origins=origins_of_node(node),
            ca_file=node.ca_file,
            client_cert=node.client_cert,
            client_key=node.client_key,
            tls_folder=tls_folder_of(deployment) if node.has_tls_files else "",
        ),
        pointers=tuple(sorted(node.pointers.items())),
        replicas=node.replicas,
    )


def _tenants(tenants: Iterable[Tenant], asked: frozenset[str]) -> tuple[tuple[TargetTenant, ...], str]:
    """(the tenants that may be asked for, why nothing is asked in tenants' names or ""). One key that is
    not to be sent stops all active checks: whoever asks with the others alone asks another question."""
    able, problems = [], []
    for tenant in tenants:
        try:
            headers = _headers(tenant, "credential_sealed", f"tenant {tenant.name}", asked)
            salt = unseal(tenant.salt_sealed, place_of(tenant, "salt_sealed"), sent_to=asked)
        except SealBroken as fault:
            problems.append(str(fault))
        else:
            able.append(TargetTenant(tenant.name, Credentials(headers=headers, origins=asked), salt=salt))
    return tuple(able), problems[0] if problems else ""


def _headers(row: Node | Tenant, column: str, whose: str, asked: frozenset[str]) -> Headers:
    """Opened for the origins that are about to be asked. Raises `SealBroken`, which then says whose."""
    try:
        return open_headers(getattr(row, column), place_of(row, column), sent_to=asked)
    except SealBroken as fault:
        raise type(fault)(f"The key of {whose} is not used. {fault}") from None
