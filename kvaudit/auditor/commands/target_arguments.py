"""Builds the targets that a command's flags describe, with everything that reaches their nodes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace

from kvaudit.auditor import targets
from kvaudit.auditor.commands.arguments import UsageError
from kvaudit.auditor.fleetfile.keys import equal_keys
from kvaudit.auditor.targets import Credentials, Node, Target


def chosen(arguments: argparse.Namespace, environ: Mapping[str, str] | None = None) -> tuple[Target, ...]:
    """One target for ``--node``, one per deployment for ``--target``; `UsageError` with a sentence."""
    environ = os.environ if environ is None else environ
    if bool(arguments.node) == bool(arguments.target):
        raise UsageError("Give either --node URL (once per node) or --target FILE.")
    try:
        if arguments.target:
            found = targets.from_file(
                arguments.target,
                deployment=arguments.deployment,
                environ=environ,
                as_tenants=hasattr(arguments, "tenant_a_key_env"),
            )
            return tuple(_asked(_overridden(each, arguments, environ), arguments, environ) for each in found)
        target = targets.from_flags(
            arguments.node,
            engine=arguments.engine,
            context=arguments.context,
            headroom=arguments.headroom,
            pins=arguments.pin,
            api_key_env=arguments.api_key_env,
            replicas=arguments.replicas,
            slug=arguments.deployment,
            environ=environ,
        )
    except targets.TargetError as error:
        raise UsageError(str(error)) from None
    reached = replace(target, nodes=tuple(_reached(node, arguments, environ) for node in target.nodes))
    return (_asked(reached, arguments, environ),)


def _asked(target: Target, arguments: argparse.Namespace, environ: Mapping[str, str]) -> Target:
    """The target with the entry and tenants that ``kvaudit probe`` was given beside it."""
    if not hasattr(arguments, "tenant_a_key_env"):
        return target
    keys = [arguments.tenant_a_key_env, arguments.tenant_b_key_env]
    if keys[1] and not keys[0]:
        raise UsageError("Give --tenant-a-key-env too; a single tenant is tenant a.")
    try:
        flags = targets.from_flags(
            ["http://127.0.0.1"],
            entry=arguments.entry,
            model=arguments.model,
            tenant_key_envs=[key for key in keys if key],
            environ=environ,
        )
    except targets.TargetError as error:
        raise UsageError(str(error)) from None
    tenants = flags.tenants or target.tenants
    salts = (arguments.tenant_a_salt_env, arguments.tenant_b_salt_env)
    salted = []
    for number, tenant in enumerate(tenants):
        variable = salts[number] if number < len(salts) else ""
        if variable and not environ.get(variable):
            raise UsageError(
                f"The environment variable {variable} for tenant {tenant.name}'s salt is not set or empty."
            )
        salted.append(replace(tenant, salt=environ.get(variable, "") if variable else tenant.salt))
    if problem := equal_keys((tenant.name, tenant.credentials.headers) for tenant in tenants):
        raise UsageError(problem)
    return replace(
        target,
        entry=flags.entry or target.entry,
        model=flags.model or target.model,
        tenants=tuple(salted),
        entry_sets_salts=arguments.entry_sets_salts or target.entry_sets_salts,
    )


def _overridden(target: Target, arguments: argparse.Namespace, environ: Mapping[str, str]) -> Target:
    """A deployment of a fleet file under the flags that were given beside it."""
    flags = targets.from_flags(
        [node.url for node in target.nodes],
        context=arguments.context,
        headroom=arguments.headroom,
        pins=arguments.pin,
        api_key_env=arguments.api_key_env,
        replicas=arguments.replicas,
        environ=environ,
    )
    rules = target.rules
    if arguments.context is not None:
        rules = replace(rules, context=flags.rules.context)
    if arguments.headroom is not None:
        rules = replace(rules, headroom=flags.rules.headroom)
    if arguments.pin is not None:
        rules = replace(rules, pins=flags.rules.pins)
    nodes = []
    for node, flagged in zip(target.nodes, flags.nodes, strict=True):
        if arguments.api_key_env:
            merged = _merged(node.credentials.headers, flagged.credentials.headers)
            node = replace(node, credentials=replace(node.credentials, headers=merged))
        if arguments.replicas is not None:
            node = replace(node, replicas=flagged.replicas)
        if arguments.engine != "auto":
            node = replace(node, engine=arguments.engine)
        nodes.append(_reached(node, arguments, environ))
    return replace(target, rules=rules, nodes=tuple(nodes))


def _reached(node: Node, arguments: argparse.Namespace, environ: Mapping[str, str]) -> Node:
    extra = tuple(_header(text, environ) for text in arguments.header_env)
    old = node.credentials
    return replace(
        node,
        credentials=Credentials(
            headers=_merged(old.headers, extra),
            ca_file=arguments.ca_file or old.ca_file,
            client_cert=arguments.client_cert or old.client_cert,
            client_key=arguments.client_key or old.client_key,
        ),
    )


def _header(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not equals or not name or not variable:
        raise UsageError(f"--header-env {text[:80]!r} must be HEADER=NAME, where NAME is a variable.")
    value = environ.get(variable, "")
    if not value:
        raise UsageError(
            f"--header-env {name}: the environment variable {variable[:80]} is not set or empty."
        )
    return name, value


def _merged(
    old: tuple[tuple[str, str], ...], new: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    given = {name.lower() for name, _ in new}
    return tuple(pair for pair in old if pair[0].lower() not in given) + new
