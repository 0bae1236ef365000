"""The command that asks the same question again, without kvaudit's database and by hand."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.auditor import checks
from kvaudit.auditor.checks.contract import Rules
from kvaudit.server.audits.models import Run
from kvaudit.server.fleet.lab_keys import LAB_KEYS
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.target_loader import rules_of

MOST_NODES = 50
PLACES = (("a", "TENANT_A_KEY"), ("b", "TENANT_B_KEY"))
"""The two tenants that checks ask as, and what a variable is called where nobody has named one."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """``line`` is ready to paste once ``variables`` (name, whose key it holds) are set; "" when nothing can
    be asked again. ``keyed_nodes``: nodes want keys that the line cannot name."""

    line: str = ""
    variables: Sequence[tuple[str, str]] = ()
    keyed_nodes: bool = False
    lab_keys: bool = False  # those of the lab stand in the line: made up, and the same everywhere


def reproduction_of(run: Run) -> Reproduction:
    """``kvaudit gate ...`` or ``kvaudit probe ...`` with the nodes as they were listed then. Keys are named by
    variables, never written out but for the lab's, which are fake and the same everywhere."""
    at = run.started_at or run.created_at
    nodes = list(Node.objects.at(at).filter(deployment=run.deployment_id)[:MOST_NODES])
    # Drift compares with what only the database remembers.
    known = [name for name in run.checks if name in checks.MODULES and name != "drift"]
    if run.wedged:  # what stopped a server from answering is not offered for pasting
        known = [name for name in known if name not in checks.ACTIVE]
    if not nodes or not known:
        return Reproduction()
    words, variables = _nodes(nodes)
    words += _rules(run.deployment)
    if any(name in checks.ACTIVE for name in known):
        asked, keys = _entry(run)
        words, variables = words + asked, variables + keys
        if run.seed is not None and run.ended:  # before that, the seed would tell what is still to be planted
            words += ["--seed", str(run.seed)]
    return _pasted(["kvaudit", *_verb(known), *words], variables, nodes)


TOKEN = "KVAUDIT_TOKEN"
"""What the variable with the API token is called where a line asks this server as well."""


def gate_line(deployment: Deployment, server: str) -> Reproduction:
    """The line for an init container or a pipeline: the nodes as they are listed now, and this server's memory."""
    nodes = list(Node.objects.current().filter(deployment=deployment)[:MOST_NODES])
    if not nodes:
        return Reproduction()
    words, variables = _nodes(nodes)
    words += [*_rules(deployment), "--server", server, "--deployment", deployment.slug, "--token-env", TOKEN]
    variables = [*variables, (TOKEN, "this server (an API token that may ask the gate)")]
    return _pasted(["kvaudit", "gate", *words], variables, nodes)


def _pasted(
    words: Sequence[str], variables: Sequence[tuple[str, str]], nodes: Sequence[Node]
) -> Reproduction:
    """The lab's keys stand before the command, since no shell but the product's own holds them."""
    fake = [name for name, _ in variables if name in LAB_KEYS]
    return Reproduction(
        line=shlex.join([*(f"{name}={LAB_KEYS[name]}" for name in fake), *words]),
        variables=[variable for variable in variables if variable[0] not in fake],
        keyed_nodes=any(node.has_headers or node.headers_env for node in nodes)
        and "--api-key-env" not in words,
        lab_keys=bool(fake),
    )


def _verb(known: list[str]) -> list[str]:
    """The gate asks pool and version by itself; the rest is probed by name."""
    if {"pool", "version"} <= set(known) and not set(known) & set(checks.ACTIVE):
        return ["gate", *(["--also", "exposure"] if "exposure" in known else [])]
    return ["probe", *known]


def _nodes(nodes: Sequence[Node]) -> tuple[list[str], list[tuple[str, str]]]:
    """A flag sends a key to every node, so it is given only where every node takes that one."""
    words = []
    for node in nodes:
        words += ["--node", f"{node.role}={node.url}" if node.role else node.url]
    named = nodes[0].headers_env
    bearer = len(named) == 1 and named[0][0] == "" and all(node.headers_env == named for node in nodes)
    if not bearer:
        return words, []
    return [*words, "--api-key-env", named[0][1]], [(named[0][1], "the nodes")]


def _rules(deployment: Deployment) -> list[str]:
    words = []
    if deployment.engine not in ("", "auto"):
        words += ["--engine", deployment.engine]
    if deployment.context:
        words += ["--context", str(deployment.context)]
    words += ["--headroom", f"{deployment.headroom:g}"]
    pins = rules_of(deployment).pins
    if pins != Rules().pins:
        for pin in pins:
            words += ["--pin", pin]
    return words


def _entry(run: Run) -> tuple[list[str], list[tuple[str, str]]]:
    """Entry, model and the keys of the first two tenants that have one, as the runner chooses them."""
    deployment = run.deployment
    words, variables = [], []
    if deployment.entry:
        words += ["--entry", deployment.entry]
    if deployment.model:
        words += ["--model", deployment.model]
    if deployment.entry_sets_salts:
        words.append("--entry-sets-salts")
    tenants = Tenant.objects.at(run.started_at or run.created_at).filter(deployment=run.deployment_id)
    for (place, unnamed), tenant in zip(PLACES, tenants.exclude(credential_sealed="")[:2], strict=False):
        variable = tenant.key_env or unnamed
        words += [f"--tenant-{place}-key-env", variable]
        variables.append((variable, f"tenant {tenant.name}"))
    return words, variables
