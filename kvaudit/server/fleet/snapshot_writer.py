"""Writes down what a run read from nodes, and notices that a fingerprint moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import EngineFacts, Fingerprint
from kvaudit.server import clock
from kvaudit.server.fleet import comparison
from kvaudit.server.fleet.facts import content_digest, facts_as_json, shown, storable_fingerprint
from kvaudit.server.fleet.models import Deployment, FingerprintChange, Node, NodeSnapshot


def record_readings(
    *, deployment: Deployment, readings: Sequence[tuple[Node, NodeSeen]], at: datetime
) -> list[FingerprintChange]:
    """`record_batch` for one deployment."""
    return record_batch([RunReadings(deployment, readings, at)])[0]


@dataclass(frozen=True, slots=True)
class RunReadings:
    """What one run read of one deployment at ``at``."""

    deployment: Deployment
    readings: Sequence[tuple[Node, NodeSeen]]
    at: datetime


@transaction.atomic
def record_batch(batch: Sequence[RunReadings]) -> list[list[FingerprintChange]]:
    """Keep what was read; return the *significant* changes (each expires evidence), per `RunReadings`.

    Unchanged nodes cost three queries together, however many. A node that could not be read, that
    was closed, or of which something newer is known already, is left as it is. Insignificant changes
    are stored too, but not returned. Takes row locks on the nodes, in order of id.
    """
    ids = {node.pk for read in batch for node, seen in read.readings if seen.facts is not None}
    if not ids:
        return [[] for _ in batch]
    nodes = {
        node.pk: node
        for node in Node.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    }
    currents = {
        snapshot.node_id: snapshot for snapshot in NodeSnapshot.objects.filter(node__in=ids, current=True)
    }
    confirmed: dict[int, datetime] = {}
    changes = [_record(read, nodes, currents, confirmed) for read in batch]
    _confirm(confirmed)
    return [[change for change in found if change.significant] for found in changes]


def _record(
    read: RunReadings,
    nodes: dict[int, Node],
    currents: dict[int, NodeSnapshot],
    confirmed: dict[int, datetime],
) -> list[FingerprintChange]:
    """One run's readings; ``currents`` and ``confirmed`` are kept up to date."""
    changes = []
    for given, seen in read.readings:
        node, facts = nodes.get(given.pk), seen.facts
        if node is None or facts is None or (node.valid_to is not None and read.at >= node.valid_to):
            continue
        current = currents.get(node.pk)
        if (
            current is not None
            and read.at <= current.last_confirmed
            and not clock.is_to_come(current.last_confirmed)
        ):
            continue
        stored = facts_as_json(facts)
        content = content_digest(stored)
        if current is not None and current.content == content:
            confirmed[current.pk] = current.last_confirmed = read.at
            continue
        snapshot, change = _keep(read.deployment, node, current, facts, stored, content, read.at)
        currents[node.pk] = snapshot
        if change is not None:
            changes.append(change)
    return changes


def _confirm(confirmed: dict[int, datetime]) -> None:
    if not confirmed:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE fleet_nodesnapshot AS snapshot SET last_confirmed = seen.at"
            " FROM unnest(%s::bigint[], %s::timestamptz[]) AS seen (id, at) WHERE snapshot.id = seen.id",
            [list(confirmed), list(confirmed.values())],
        )


def _keep(
    deployment: Deployment,
    node: Node,
    current: NodeSnapshot | None,
    facts: EngineFacts,
    stored: dict[str, Any],
    content: str,
    at: datetime,
) -> tuple[NodeSnapshot, FingerprintChange | None]:
    """Store a new snapshot; return it and the change against the reference, if there is one."""
    print_ = storable_fingerprint(facts)
    limits = limits_of(deployment, facts.context.value)
    before = current or _of_the_row_before(node)
    change: FingerprintChange | None
    if before is None:
        reference, change = print_, _joined_later(deployment, node, print_, limits, at)
    else:
        process = shown(facts.process)
        found = comparison.compare(
            before.reference_fingerprint,
            print_,
            limits=limits,
            same_process=bool(process) and process == before.process,
        )
        reference = found.reference
        change = _against_reference(deployment, node, before, print_, found, at)
    if current is not None:
        NodeSnapshot.objects.filter(pk=current.pk).update(current=False)
    snapshot = NodeSnapshot.objects.create(
        node=node,
        first_seen=at,
        last_confirmed=at,
        engine=facts.engine[:40],
        version=shown(facts.version),
        role=shown(facts.role),
        pool=facts.pool.value,
        context=facts.context.value,
        process=shown(facts.process),
        digest=print_.digest,
        content=content,
        facts=stored,
        fingerprint=print_.as_json(),
        reference=reference.as_json(),
    )
    return snapshot, change


def limits_of(deployment: Deployment, context_read: int | None) -> tuple[int, ...]:
    """The token counts that a pool must not cross unnoticed."""
    known = [each for each in (deployment.context, context_read) if each]
    return comparison.crossing_limits(
        context=max(known, default=None), headroom=deployment.headroom, edge_limit=deployment.edge_limit
    )


def _against_reference(
    deployment: Deployment,
    node: Node,
    before: NodeSnapshot,
    seen: Fingerprint,
    found: comparison.Comparison,
    at: datetime,
) -> FingerprintChange | None:
    """Insignificant moves are told against the reading before, so that each is told once."""
    changes = (*found.changes, *found.learnt)
    if not found.significant:
        last = Fingerprint.from_json(before.fingerprint)
        changes = tuple(change for change in changes if _field(last, change.name) != change.after)
    if not changes:
        return None
    return FingerprintChange.objects.create(
        deployment=deployment,
        node=node,
        at=at,
        significant=found.significant,
        summary=f"{node.name}: {comparison.in_words(changes)}"[:500],
        before=before.reference,
        after=seen.as_json(),
        diff=comparison.as_json(changes),
    )


def _field(print_: Fingerprint, name: str) -> Any:
    return print_.pools[name] if name in print_.pools else print_.exact.get(name)


def _of_the_row_before(node: Node) -> NodeSnapshot | None:
    """A node whose URL or key changed is another row with the same name: its readings go on."""
    return (
        NodeSnapshot.objects.filter(node__deployment_id=node.deployment_id, node__name=node.name)
        .exclude(node=node)
        .order_by("-last_confirmed", "-pk")
        .first()
    )


def _joined_later(
    deployment: Deployment, node: Node, seen: Fingerprint, limits: tuple[int, ...], at: datetime
) -> FingerprintChange | None:
    """A node added after the deployment was first read changes the deployment's fingerprint, the
    *set* of its nodes' ones, unless it is like another node: one that is there, or one that it
    replaced. Nodes that were there from the start are a baseline, not a change."""
    snapshots = NodeSnapshot.objects.filter(node__deployment=deployment).exclude(node=node)
    if not snapshots.filter(first_seen__lt=node.valid_from).exists():
        return None
    still_there_or_replaced = Q(node__valid_to=None) | Q(node__valid_to__gte=node.valid_from)
    others = snapshots.filter(still_there_or_replaced, current=True)
    if any(comparison.matches(other.reference_fingerprint, seen, limits) for other in others):
        return None
    return FingerprintChange.objects.create(
        deployment=deployment,
        node=node,
        at=at,
        significant=True,
        summary=f"{node.name}: a node was added whose configuration no other node has"[:500],
        before=None,
        after=seen.as_json(),
        diff=[],
    )


def note_removal(*, deployment: Deployment, node: Node, at: datetime) -> FingerprintChange | None:
    """After a node was closed without another in its place: a change when no remaining node has
    its configuration."""
    gone = NodeSnapshot.objects.filter(node=node, current=True).first()
    if gone is None:
        return None
    limits = limits_of(deployment, gone.context)
    remaining = NodeSnapshot.objects.filter(current=True, node__deployment=deployment, node__valid_to=None)
    print_ = gone.reference_fingerprint
    if any(comparison.matches(each.reference_fingerprint, print_, limits) for each in remaining):
        return None
    return FingerprintChange.objects.create(
        deployment=deployment,
        node=node,
        at=at,
        significant=True,
        summary=f"{node.name}: a node was removed whose configuration no other node has"[:500],
        before=gone.reference,
        after=None,
        diff=[],
    )
