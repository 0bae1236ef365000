"""Builds a prober from a target and what the passive reading found of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvaudit.auditor import engines
from kvaudit.auditor.checks.contract import NodeSeen, Rules
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.serving import Where
from kvaudit.auditor.engines import fetch
from kvaudit.auditor.fleetfile.keys import equal_keys
from kvaudit.auditor.prober.calibration import CannotAsk
from kvaudit.auditor.prober.network import UNKNOWN_REPLICA, NetworkProber
from kvaudit.auditor.prober.replies import Seal
from kvaudit.auditor.prober.serving import serving_of
from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.auditor.prober.untested import untested
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.targets import Credentials, Node, Target
from kvaudit.auditor.text.markers import Marker, seeded
from kvaudit.auditor.text.wordings import draw_wording
from kvaudit.auditor.transport import Client, KeyForElsewhere

UNREAD_PAGE = 64
"""Tokens assumed for a page that no node shows: the largest common size (sglang.md 1.11)."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What an active run may do. ``prompt_tokens`` is the ceiling of each check (None = the default
    of checks.md: max(20 million, 80 x context)), ``daily_left`` what the deployment may still be
    sent today; ``stopped`` gives the sentence why nothing more may be sent, or "". ``earlier`` holds
    the markers and decoys of the last 30 days (read back with `kvaudit.auditor.text.markers.live`): one that
    surfaces now is a hit as well. ``planted`` is told every marker before it is sent, and ``spent`` counts
    while the run goes on: whoever keeps them may look at any moment. ``replayed`` are the
    lengths in tokens of an earlier run that failed: they are asked again, wherever the limit is now. ``idle`` are
    the seconds, in all, in which the target may be left alone: what expires while nobody asks is seen afterwards.
    ``where``: whether what is asked takes traffic. ``seconds`` are what each check may take, ``seconds_left`` what is
    left of the run; None = as long as it takes."""

    consent: bool = False
    prompt_tokens: int | None = None
    daily_left: int | None = None
    seed: int | None = None
    stopped: Callable[[], str] = lambda: ""
    seal: Seal | None = None
    earlier: Sequence[Marker] = ()
    replayed: tuple[int, ...] = ()
    planted: Callable[[Marker], None] = lambda marker: None
    spent: TokenUsage | None = None  # None = a count of the run's own
    idle: float = 0.0
    where: Where = "production"
    seconds: float | None = None
    seconds_left: Callable[[], float | None] = lambda: None


SIZES = (
    "chunked_prefill_size",
    "max_prefill_tokens",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "sliding_window",
    "mamba_block_size",
)
"""Settings in tokens at whose multiples an engine changes how it works on a prompt."""


def limits_of(nodes: Sequence[EngineFacts], rules: Rules) -> Limits:
    """The lengths that matter, in tokens. N is the smallest input limit of any node (a prompt passes
    them all), or the declared edge limit + 1 where that is smaller; unknown as soon as one node hides
    its own. C is the largest context read or declared."""
    refused = [facts.input_limit.value for facts in nodes]
    first = None if not refused or None in refused else min(limit for limit in refused if limit is not None)
    if rules.edge_limit is not None:
        first = rules.edge_limit + 1 if first is None else min(first, rules.edge_limit + 1)
    pools = [facts.pool.value for facts in nodes]
    contexts = [facts.context.value for facts in nodes if facts.context.value is not None]
    if rules.context is not None:
        contexts.append(rules.context)
    pages = [facts.setting("page_size").value for facts in nodes]
    page = max((size for size in pages if isinstance(size, int) and size > 0), default=None)
    decode = [
        facts.input_limit.value for facts in nodes if facts.role.value == "decode" and facts.input_limit.value
    ]
    return Limits(
        first_rejected=first,
        context=max(contexts, default=None),
        pool=None if not pools or None in pools else min(pool for pool in pools if pool is not None),
        page=page or UNREAD_PAGE,
        page_read=page is not None,
        decode_limit=min(decode, default=None),
        unified=all(facts.role.value not in ("prefill", "decode") for facts in nodes),
        largest_pool=None if not pools or None in pools else max(pool for pool in pools if pool is not None),
        sizes=tuple(sorted({size for facts in nodes for size in _sizes(facts)})),
    )


def _sizes(facts: EngineFacts) -> list[int]:
    found = [facts.setting(name).value for name in SIZES]
    return [size for size in found if isinstance(size, int) and not isinstance(size, bool) and size > 1]


def default_ceiling(limits: Limits) -> int:
    """Prompt tokens per check and run: max(20 million, 80 x C)."""
    return max(20_000_000, 80 * (limits.context or 0))


async def prober_for(target: Target, seen: Sequence[NodeSeen], permission: Permission) -> NetworkProber:
    """A calibrated prober; close it with `close`. Raises `CannotAsk` with the sentence that says
    what is missing."""
    nodes = [node.facts for node in seen if node.facts is not None and node.facts.kind == "node"]
    if not target.tenants:
        raise CannotAsk("No tenant's key was given, so no request can be sent as a tenant.")
    if same := equal_keys((tenant.name, tenant.credentials.headers) for tenant in target.tenants):
        raise CannotAsk(same, denied=True, needs="Give each tenant a key of its own, then run it again.")
    if not nodes:
        raise CannotAsk(
            "No node could be read, so no length and no way to ask is known.",
            needs="Make the nodes answer (address, key, TLS), then run it again.",
        )
    names = {facts.engine for facts in nodes}
    if len(names) > 1:
        raise CannotAsk(
            f"The nodes run different engines ({', '.join(sorted(names))}): audit them apart.",
            needs="Give the nodes of one engine in one run, and those of the other in another.",
        )
    adapter = engines.get(names.pop())
    try:
        dialect = adapter.dialect()
    except ValueError as problem:
        raise CannotAsk(
            f"This engine cannot be asked: {problem}.",
            needs="Read it with the passive checks; active ones need an engine that kvaudit can ask.",
        ) from None
    entry = target.asked_at
    if not entry:
        raise CannotAsk("Several nodes but no entry URL were given: tenants' requests go through the entry.")
    model = target.model or next((facts.model.value for facts in nodes if facts.model.value), None)
    if not model:
        raise CannotAsk(
            "The model's name is neither declared nor shown by a node: give it.",
            needs="Give the model's name (kvaudit probe --model, model in the fleet file).",
        )
    allow = fetch.allowed([adapter])
    limits = limits_of(nodes, target.rules)
    spent = permission.spent if permission.spent is not None else TokenUsage()
    spent.begin()
    spent.ceiling = (
        permission.prompt_tokens if permission.prompt_tokens is not None else default_ceiling(limits)
    )
    spent.left = permission.daily_left
    read = {node.name for node in seen if node.facts is not None and node.facts.kind == "node"}
    try:
        wires = {tenant.name: _client(entry, allow, tenant.credentials) for tenant in target.tenants}
        node_wires = [
            _client(node.url, allow, node.credentials) for node in target.nodes if node.name in read
        ]
    except KeyForElsewhere as problem:
        raise CannotAsk(
            str(problem), denied=True, needs="Set the tenants' keys again, then run it again."
        ) from None
    draw = seeded(permission.seed)
    prober = NetworkProber(
        wires=wires,
        dialect=dialect,
        model=model,
        limits=limits,
        nodes=nodes,
        node_wires=node_wires,
        consent=permission.consent or target.consent,
        draw=draw,
        wording=draw_wording(draw),
        idle_allowance=permission.idle,
        spent=spent,
        seal=permission.seal,
        stopped=permission.stopped,
        salts={tenant.name: tenant.salt for tenant in target.tenants if tenant.salt},
        entry_sets_salts=target.entry_sets_salts,
        earlier=permission.earlier,
        planted=permission.planted,
        scope=_scope(target, entry),
        run_seconds_left=permission.seconds_left,
        seconds=permission.seconds,
        serving=serving_of(
            [node for node in seen if node.facts is not None and node.facts.kind == "node"],
            alone=_alone(target, entry) is not None,
            several=any(node.others for node in seen),
            where=permission.where,
        ),
    )
    try:
        await prober.calibrate()
        prober.untested = await untested(node_wires)
    except BaseException:
        await prober.aclose()
        raise
    return prober


def _scope(target: Target, entry: str) -> str:
    """A node that is asked at its own address is known; behind any other entry answers some replica."""
    alone = _alone(target, entry)
    return f"the node {alone.name} alone" if alone is not None else UNKNOWN_REPLICA


def _alone(target: Target, entry: str) -> Node | None:
    return next((node for node in target.nodes if node.url.rstrip("/") == entry.rstrip("/")), None)


def _client(url: str, allow: frozenset[tuple[str, str]], credentials: Credentials) -> Client:
    return Client(
        url,
        allow=allow,
        headers=credentials.headers_for(url),
        ca_file=credentials.ca_file,
        client_cert=credentials.client_cert,
        client_key=credentials.client_key,
        tls_folder=credentials.tls_folder,
    )
