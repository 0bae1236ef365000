"""Judges what nodes exchange: the layout of pages that prefill sends to decode, and that nodes leave in one store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from packaging.version import Version

from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.checks.findings import Findings
from kvaudit.auditor.checks.node_coverage import listed
from kvaudit.auditor.checks.pool.numbers import NodePool
from kvaudit.auditor.engines import describe
from kvaudit.auditor.readings import EngineFacts

HALVES = {"bfloat16", "float16"}
"""What a dtype of "auto" stands for unless the checkpoint says otherwise: one of these, and not told which."""

_SAME = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp8": "fp8_e4m3"}


def judge_pairing(nodes: Sequence[NodePool], rules: Rules, findings: Findings) -> None:
    """Prefill and decode must agree on the layout that they exchange, and on truncation."""
    prefill = [node for node in nodes if node.role == "prefill"]
    decode = [node for node in nodes if node.role == "decode"]
    _judge_truncation(prefill, decode, findings)
    if not prefill or not decode:
        return
    _judge_pages(prefill, decode, rules, findings)
    dtypes = ({kv_dtype(node.facts) for node in role} - {None} for role in (prefill, decode))
    revisions = ({node.facts.revision.value for node in role} - {None} for role in (prefill, decode))
    for title, (first, second) in (("the KV dtype", dtypes), ("the model revision", revisions)):
        if not first or not second or len(first | second) < 2:
            continue
        said = f"prefill and decode disagree on {title}: {_shown(first)} against {_shown(second)}"
        if title == "the KV dtype" and not unlike(first | second):
            findings.unknowns.append(f"{said}, which may be one; start both with the same")
        else:
            findings.fails.append(said)
    models = {node.facts.model.value for node in (*prefill, *decode) if node.facts.model.known}
    if len(models) > 1:
        findings.warnings.append(f"the nodes name different models: {_shown(models)}")


def judge_stores(nodes: Sequence[NodePool], rules: Rules, findings: Findings) -> None:
    """Nodes that name one store read each other's pages, whatever their roles. Its keys leave the KV dtype out
    (sglang#33268, sglang#38362, vllm#45767, lmdeploy#4930): with unlike ones a hit is read as bytes that it is not."""
    sharing: dict[str, list[NodePool]] = {}
    for node in nodes:
        for store in _stores(node.facts, rules):
            sharing.setdefault(store, []).append(node)
    for store, members in sorted(sharing.items()):
        dtypes = {kv_dtype(node.facts) for node in members}
        names = listed(node.node.name for node in members)
        if unlike(dtypes - {None}):
            findings.fails.append(
                f"{names} share the store {store} with unlike KV dtypes, {_shown(dtypes - {None})}, which its keys "
                "do not tell apart"
            )
        elif len(dtypes) > 1:
            findings.unknowns.append(
                f"{names} share the store {store}, and whether with one KV dtype is not told"
            )
    maybe = [node for node in nodes if _may_store(node.facts, rules)]
    dtypes = {kv_dtype(node.facts) for node in maybe} - {None}
    if unlike(dtypes):
        findings.unknowns.append(
            f"{listed(node.node.name for node in maybe)} have unlike KV dtypes, {_shown(dtypes)}, and may keep pages "
            "in one store; declare the condition mooncake_store"
        )


def kv_dtype(facts: EngineFacts) -> str | None:
    """The dtype of the cache in one spelling; "auto" where it follows a model whose own is not told."""
    dtype = _spelled(facts.setting("kv_cache_dtype").value)
    own = _spelled(facts.setting("dtype").value)
    return own if dtype == "auto" and own in HALVES else dtype


def unlike(dtypes: Iterable[str | None]) -> bool:
    """Whether these cannot be one dtype."""
    found = set(dtypes)
    return len(found - {"auto"}) > 1 or ("auto" in found and bool(found - HALVES - {"auto"}))


def _spelled(value: object) -> str | None:
    if value is None:
        return None
    plain = str(value).lower().removeprefix("torch.")
    return _SAME.get(plain, plain)


def _stores(facts: EngineFacts, rules: Rules) -> set[str]:
    """Stores that it keeps pages in, as it says and as is declared; a folder of files is its own."""
    backend = facts.setting("hicache_storage_backend").value
    named = {str(backend).lower()} if backend and facts.conditions.get("hicache") is not False else set()
    if rules.conditions.get("mooncake_store") and facts.conditions.get("hicache") is not False:
        named.add("mooncake")
    return named - {"file", "none"}


def _may_store(facts: EngineFacts, rules: Rules) -> bool:
    """Whether a component that can be a store is in use, and neither the process nor the operator says as what."""
    told = "hicache" in facts.conditions or facts.setting("hicache_storage_backend").known
    return "mooncake" in facts.components and not told and "mooncake_store" not in rules.conditions


def _judge_pages(
    prefill: Sequence[NodePool], decode: Sequence[NodePool], rules: Rules, findings: Findings
) -> None:
    """Unequal page sizes are fine where the transport converts them, as NIXL does (vllm#26759)."""
    first, second = (
        {size for node in role if (size := node.facts.setting("page_size").value) is not None}
        for role in (prefill, decode)
    )
    if not first or not second or len(first | second) < 2:
        return
    said = f"prefill and decode disagree on the page size: {_shown(first)} against {_shown(second)}"
    allowed = [_converts(node.facts, rules) for node in (*prefill, *decode)]
    if False in allowed:
        findings.fails.append(said)
    elif None in allowed:
        findings.unknowns.append(f"{said}, and whether their transport converts pages is not told")


def _converts(facts: EngineFacts, rules: Rules) -> bool | None:
    """Whether this node's transport takes pages of another size; None where the transport or release is not told."""
    since = describe(facts.engine).unequal_pages_since
    used = {name: facts.conditions.get(name, rules.conditions.get(name)) for name in since}
    if not since:
        return False
    if True not in used.values():
        return None
    build = build_of(facts.engine, facts.version.value)
    if build.low is None or build.high is None:
        return None
    releases = [Version(since[name]) for name, answer in used.items() if answer]
    if any(build.low >= release for release in releases):
        return True
    return None if any(build.high >= release for release in releases) else False


def _judge_truncation(prefill: Sequence[NodePool], decode: Sequence[NodePool], findings: Findings) -> None:
    """allow_auto_truncate cuts the prompt on one side only when the limits differ; no release read
    through 0.5.23 compares the lengths."""
    truncating = [
        node for node in (*prefill, *decode) if node.facts.setting("allow_auto_truncate").value is True
    ]
    if not truncating:
        return
    names = listed(node.node.name for node in truncating)
    limits = {node.limit.value for node in (*prefill, *decode)}
    if prefill and decode and None not in limits:
        if len(limits) > 1:
            findings.fails.append(
                f"allow_auto_truncate is on ({names}) while the input limits differ "
                f"({_shown(limits)}): decode may read pages that prefill never wrote"
            )
        return
    missing = "both roles were not given" if not (prefill and decode) else "an input limit is not exposed"
    findings.unknowns.append(
        f"allow_auto_truncate is on ({names}) and {missing}, so equal limits cannot be shown"
    )


def _shown(values: Iterable[Any]) -> str:
    return " and ".join(sorted(f"{value:,}" if isinstance(value, int) else str(value) for value in values))
