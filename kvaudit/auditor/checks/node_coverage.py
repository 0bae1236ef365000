"""Tells which nodes of an audit were read and which were not, as lists and sentences for every passive check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from kvaudit.auditor.checks.contract import Audit, NodeSeen
from kvaudit.auditor.engines import ENGINES
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.verdict import Evidence, Result, Verdict

ROLES = ("prefill", "decode", "unified")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def read_nodes(audit: Audit) -> tuple[NodeSeen, ...]:
    """The nodes that answered and are no routers."""
    return tuple(node for node in audit.nodes if node.facts is not None and node.facts.kind != "router")


def routers(audit: Audit) -> tuple[NodeSeen, ...]:
    return tuple(node for node in audit.nodes if node.facts is not None and node.facts.kind == "router")


def unread(audit: Audit) -> tuple[str, ...]:
    """One sentence for each node that could not be read."""
    return tuple(
        f"{node.name} could not be read: {(node.problem or 'no answer was recorded').rstrip('.')}"
        for node in audit.nodes
        if node.facts is None
    )


def wrong_roles(audit: Audit) -> tuple[str, ...]:
    """One sentence for each node that was declared as something else than it says it is: the numbers of one role would
    be judged as another's."""
    return tuple(
        f"{node.name} was given as {node.role} but says it is {node.facts.role.value}: declare it as that, or correct "
        f"its address ({node.facts.role.source})"
        for node in read_nodes(audit)
        if node.facts is not None
        and node.role
        and node.facts.role.known
        and node.role != node.facts.role.value
    )


def contradictions(nodes: Sequence[NodeSeen]) -> tuple[str, ...]:
    """One sentence for each pair of answers of a node that cannot be of one process."""
    return tuple(
        f"{node.name} contradicts itself: {clause}"
        for node in nodes
        if node.facts is not None
        for clause in (*node.facts.contradictions, *_limit_above_context(node.facts))
    )


def _limit_above_context(facts: EngineFacts) -> tuple[str, ...]:
    limit, context = facts.input_limit, facts.context
    if limit.value is None or context.value is None or limit.value <= context.value:
        return ()
    above = f"above the {context.value:,} of {context.source}"
    return (f"it takes prompts of up to {limit.value - 1:,} tokens ({limit.source}), {above}",)


def naming_unread(result: Result, audit: Audit) -> Result:
    """The result; a fail also names the nodes that it says nothing about, since what is worse was said first."""
    missing = unread(audit)
    if result.verdict is not Verdict.FAIL or not missing:
        return result
    more = f"; and {len(missing) - 2} more" if len(missing) > 2 else ""
    return replace(
        result, summary=f"{result.summary} Nothing is known of the rest: {'; '.join(missing[:2])}{more}."
    )


def evidence(audit: Audit) -> tuple[Evidence, ...]:
    """All evidence of all nodes, each body once."""
    return tuple({item.sha256: item for node in audit.nodes for item in node.evidence}.values())


def scope(nodes: Sequence[NodeSeen]) -> str:
    """ "one prefill node", "two prefill and one decode node", "one node of unknown role"."""
    found = Counter(node.effective_role for node in nodes if not node.behind)
    parts = [f"{_number(found[role])} {role}" for role in ROLES if found[role]]
    other = sum(count for role, count in found.items() if role not in ROLES)
    if not parts:
        return f"{_number(other)} node{'' if other == 1 else 's'} of unknown role" if other else "no node"
    last = [role for role in ROLES if found[role]][-1]
    words = f"{listed(parts)} node{'' if found[last] == 1 else 's'}"
    return f"{words} and {_number(other)} of unknown role" if other else words


def unlisted_workers(audit: Audit) -> tuple[str, ...]:
    """URLs that a given router lists and that are not among the nodes of this audit."""
    given = {_place(node.url) for node in audit.nodes}
    return tuple(
        worker.url
        for router in routers(audit)
        for worker in (router.facts.workers if router.facts else ())
        if _place(worker.url) not in given
    )


def missing_roles(audit: Audit) -> tuple[str, ...]:
    """Roles that a deployment-wide audit must have and did not read: the declared ones, and the
    other half of a disaggregated pair. Empty when single nodes were given."""
    if not audit.complete:
        return ()
    seen = {node.effective_role for node in read_nodes(audit)}
    wanted = set(audit.expected_roles) | ({"prefill", "decode"} if seen & {"prefill", "decode"} else set())
    return tuple(sorted(wanted - seen))


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    words = list(parts)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def thousands(number: int) -> str:
    """A token count for people: 1,048,576."""
    return f"{number:,}"


def sentence(text: str) -> str:
    """Capital first letter (but names stay as they are written) and one full stop."""
    text = text.strip().rstrip(".")
    first = text.partition(" ")[0]
    named = first in ENGINES or any(not char.isalpha() for char in first.rstrip(",;:"))
    return f"{text if named else text[:1].upper() + text[1:]}." if text else ""


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _place(url: str) -> str:
    """Host and port of a URL; a data-parallel suffix ``@1`` is cut off."""
    parts = urlsplit(url.rsplit("@", 1)[0] if url.rsplit("@", 1)[-1].isdigit() else url)
    return parts.netloc.lower() or url
