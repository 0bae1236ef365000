"""Targets out of flags and fleet files.

The fleet file schema is ``kvaudit.fleet/1``; secrets are never in it, only the names of environment
variables that hold them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.fleetfile import (
    FleetDeployment,
    FleetNode,
    FleetTenant,
    parse_fleet,
    parse_fleet_csv,
    values,
)
from kvaudit.auditor.fleetfile.keys import bearer_value
from kvaudit.auditor.fleetfile.schema import LARGEST_FILE
from kvaudit.auditor.targets.model import Credentials, Node, Target, Tenant
from kvaudit.auditor.text.quoting import quoted, without_keys


class TargetError(ValueError):
    """A flag, a file or the environment cannot be used; the text is the sentence to print. Whatever in it
    could be a key, given in the place of a variable's name, is not repeated."""

    def __init__(self, sentence: str) -> None:
        super().__init__(without_keys(sentence))


def from_flags(
    nodes: Sequence[str],
    *,
    engine: str = "auto",
    context: int | str | None = None,
    edge_limit: int | str | None = None,
    headroom: float | str | None = None,
    pins: Sequence[str] | None = None,
    conditions: Mapping[str, bool] | None = None,
    api_key_env: str = "",
    replicas: int | str | None = None,
    entry: str = "",
    model: str = "",
    tenant_key_envs: Sequence[str] = (),
    consent: bool = False,
    slug: str = "",
    environ: Mapping[str, str] | None = None,
) -> Target:
    """A target out of ``--node [ROLE=]URL`` and its companions; `TargetError` with a sentence.

    ``context`` and ``edge_limit`` are tokens. The key in ``api_key_env`` is sent to every node as a
    bearer token; ``tenant_key_envs`` become tenants ``a``, ``b``, ... Single nodes were given, so
    the target is never ``complete``.
    """
    environ = os.environ if environ is None else environ
    try:
        engine = values.engine(engine)
        rules = _rules(context, edge_limit, headroom, pins, conditions)
        credentials = _bearer(api_key_env, "--api-key-env", environ)
        target = Target(
            slug=slug or "given on the command line",
            nodes=_named(
                [(*parse_node(node), engine) for node in nodes],
                credentials,
                0 if replicas is None else values.replicas(replicas, "--replicas"),
            ),
            entry=values.url(entry, "--entry") if entry else "",
            model=model,
            tenants=tuple(
                Tenant(name, _bearer(variable, f"--tenant-{name}-key-env", environ))
                for name, variable in zip("abcdefgh", tenant_key_envs, strict=False)
            ),
            rules=rules,
            consent=consent,
        )
    except values.InvalidValue as problem:
        raise TargetError(str(problem)) from None
    return _told_apart(target)


def parse_node(flag: str) -> tuple[str, str]:
    """``prefill=http://10.0.0.7:30000`` -> (role, url); the role is "" where none is given."""
    role, equals, address = flag.partition("=")
    if not equals or "://" in role:
        return "", values.url(flag, "--node")
    if role not in values.ROLES:
        raise TargetError(
            f"--node: the role {quoted(role)} is unknown; use one of {', '.join(values.ROLES)}."
        )
    return role, values.url(address, "--node")


def from_file(
    path: str | Path,
    *,
    deployment: str = "",
    environ: Mapping[str, str] | None = None,
    as_tenants: bool = True,
) -> tuple[Target, ...]:
    """The targets of a fleet file (``.csv`` or YAML), or the one with this slug; `TargetError` with
    one line per problem when it cannot be used. Whoever only reads nodes needs no tenant's key:
    ``as_tenants=False`` leaves the tenants out."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except OSError as problem:
        raise TargetError(f"The fleet file {file} cannot be read: {problem.strerror or problem}.") from None
    fleet = parse_fleet_csv(content) if file.suffix.lower() == ".csv" else parse_fleet(content)
    if fleet.problems:
        raise TargetError("\n".join(f"{file}: {each}" for each in fleet.problems))
    chosen = [each for each in fleet.deployments if not deployment or each.slug == deployment]
    if not chosen:
        slugs = ", ".join(each.slug for each in fleet.deployments)
        raise TargetError(f"{file} has no deployment {quoted(deployment)}; it describes {slugs}.")
    return tuple(from_deployment(each, environ=environ, as_tenants=as_tenants) for each in chosen)


def from_deployment(
    described: FleetDeployment, *, environ: Mapping[str, str] | None = None, as_tenants: bool = True
) -> Target:
    """A described deployment with its keys out of the environment; complete, since a fleet file lists
    every node. `TargetError` names a variable that is not set."""
    environ = os.environ if environ is None else environ
    rules = Rules()
    target = Target(
        slug=described.slug,
        nodes=tuple(
            Node(
                name=node.name,
                url=node.url,
                role=node.role,
                engine=node.engine or described.engine,
                credentials=_credentials(node, f"node {node.name} of {described.slug}", environ),
                pointers=node.pointers,
                replicas=node.replicas,
            )
            for node in described.nodes
        ),
        entry=described.entry,
        model=described.model,
        tenants=tuple(
            Tenant(
                tenant.name,
                _credentials(tenant, f"tenant {tenant.name} of {described.slug}", environ),
                salt=_secret(tenant.salt_env, f"the salt of tenant {tenant.name}", environ)
                if tenant.salt_env
                else "",
            )
            for tenant in (described.tenants if as_tenants else ())
        ),
        rules=Rules(
            headroom=rules.headroom if described.headroom is None else described.headroom,
            pins=rules.pins if described.pins is None else described.pins,
            context=described.context,
            edge_limit=described.edge_limit,
            conditions=dict(described.conditions),
            disagg_buffer=described.disagg_buffer,
            components=dict(described.components),
        ),
        complete=True,
        consent=described.consent,
        session=described.session,
        entry_sets_salts=described.entry_sets_salts,
    )
    return _told_apart(target)


def _told_apart(target: Target) -> Target:
    """The target. `TargetError` when two of its tenants have one key."""
    if problem := target.why_no_tenants:
        raise TargetError(problem)
    return target


def _rules(
    context: int | str | None,
    edge_limit: int | str | None,
    headroom: float | str | None,
    pins: Sequence[str] | None,
    conditions: Mapping[str, bool] | None,
) -> Rules:
    default = Rules()
    return Rules(
        headroom=default.headroom if headroom is None else values.headroom(headroom),
        pins=default.pins if pins is None else tuple(values.pin(pin) for pin in pins),
        context=None if context is None else values.tokens(context, "--context"),
        edge_limit=None if edge_limit is None else values.tokens(edge_limit, "--edge-limit"),
        conditions={values.condition(name): met for name, met in (conditions or {}).items()},
    )


def _named(
    given: Sequence[tuple[str, str, str]], credentials: Credentials, replicas: int
) -> tuple[Node, ...]:
    """Nodes named after their role and place in it: prefill-0, prefill-1, decode-0, node-0."""
    counts: dict[str, int] = {}
    seen: set[str] = set()
    nodes = []
    for role, address, engine in given:
        if address in seen:
            raise TargetError(f"--node {address} was given twice.")
        seen.add(address)
        number = counts.get(role, 0)
        counts[role] = number + 1
        name = f"{role or 'node'}-{number}"
        nodes.append(Node(name, address, role, engine, credentials, replicas=replicas))
    return tuple(nodes)


def _bearer(variable: str, what: str, environ: Mapping[str, str]) -> Credentials:
    if not variable:
        return Credentials()
    return Credentials(headers=(("Authorization", bearer_value(_secret(variable, what, environ))),))


def _credentials(described: FleetNode | FleetTenant, what: str, environ: Mapping[str, str]) -> Credentials:
    headers = [(name, _secret(variable, what, environ)) for name, variable in described.headers_env]
    if described.key_env:
        headers.append(("Authorization", bearer_value(_secret(described.key_env, what, environ))))
    if isinstance(described, FleetTenant):
        return Credentials(headers=tuple(headers))
    return Credentials(
        headers=tuple(headers),
        ca_file=described.ca_file,
        client_cert=described.client_cert,
        client_key=described.client_key,
    )


def _secret(variable: str, what: str, environ: Mapping[str, str]) -> str:
    """The value of a variable; `TargetError` names the variable, never the value."""
    value = environ.get(variable, "").strip()
    if not value:
        raise TargetError(f"The environment variable {variable} for {what} is not set or empty.")
    if not value.isascii() or not value.isprintable():
        raise TargetError(
            f"The environment variable {variable} for {what} holds characters that no HTTP header may carry."
        )
    return value
