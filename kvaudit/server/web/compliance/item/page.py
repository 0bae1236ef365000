"""One item of one deployment: how it stands, on which runs that rests, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kvaudit.server.audits.models import CheckState
from kvaudit.server.audits.state import standing
from kvaudit.server.audits.state.bulk_reads import when
from kvaudit.server.checklists.evaluation import Cell, CheckInterval
from kvaudit.server.checklists.items import DISAGGREGATED, Item, Part
from kvaudit.server.checklists.models import Assessed, Attestation, Waiver
from kvaudit.server.fleet.models import Deployment, NodeSnapshot
from kvaudit.server.web.kit.parts import checks

MOST_PAST = 20


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One state that the item rests on; ``state`` is None for a check that never ran."""

    check: str
    title: str
    state: CheckState | None = None
    expired: bool = False
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class PartLine:
    """A part that is read and shown but never decides. ``readings``: (node, "on", "off" or "")."""

    part: Part
    applies: bool
    readings: Sequence[tuple[str, str]] = ()

    @property
    def exposed(self) -> bool:
        return any(said for _, said in self.readings)


@dataclass(frozen=True, slots=True)
class ItemPage:
    deployment: Deployment
    moment: datetime
    item: Item
    cell: Cell
    lines: Sequence[CheckLine]
    parts: Sequence[PartLine]
    attestation: Attestation | None  # in force at the moment, whether it decides or not
    attestations: Sequence[Attestation]
    waivers: Sequence[Waiver]
    pending: Waiver | None

    @property
    def attestable(self) -> bool:
        return self.item.attestable or any(line.applies for line in self.parts)


def item_page(deployment: Deployment, key: str, moment: datetime | None) -> ItemPage | None:
    """None when the deployment is not (or was not then) held to such an item."""
    matrix = Assessed.objects.filter(pk=deployment.pk).standings(moment=moment)
    if not matrix.rows or key not in matrix.rows[0].cells:
        return None
    cell = matrix.rows[0].cells[key]
    attestations = list(
        Attestation.objects.of(deployment, key).select_related("author", "ended_by", "team", "evidence")[
            :MOST_PAST
        ]
    )
    waivers = list(
        Waiver.objects.of(deployment, key).select_related("requester", "decided_by", "ended_by", "team")[
            :MOST_PAST
        ]
    )
    return ItemPage(
        deployment=deployment,
        moment=matrix.moment,
        item=cell.item,
        cell=cell,
        lines=_lines(cell, deployment, moment),
        parts=[_part(part, deployment) for part in cell.item.parts],
        attestation=next(
            (attestation for attestation in attestations if attestation.in_force(matrix.moment)), None
        ),
        attestations=attestations,
        waivers=waivers,
        pending=next((waiver for waiver in waivers if waiver.state(matrix.moment) == "pending"), None),
    )


def _lines(cell: Cell, deployment: Deployment, moment: datetime | None) -> list[CheckLine]:
    states = list(
        CheckState.objects.as_of(moment)
        .filter(deployment=deployment, check_id__in=cell.item.checks)
        .select_related("node", "result")
        .order_by("node_id")
    )
    lines = []
    for check in cell.item.checks:
        mine = [state for state in states if state.check_id == check]
        if not mine:
            lines.append(CheckLine(check, checks.title(check)))
        for state in mine:
            expired = any(_is(state, says) for says in cell.expired)
            step = "" if state.verdict == "pass" and not expired else standing.next_step(state.result)
            lines.append(CheckLine(check, checks.title(check), state, expired, step))
    return lines


def _is(state: CheckState, says: CheckInterval) -> bool:
    return (state.check_id, state.run_id, state.since) == (says.check, says.run_id, when(says.since))


def _part(part: Part, deployment: Deployment) -> PartLine:
    """The condition as every current node says it; not applicable where no node is prefill or decode and
    all say or are declared unified."""
    readings, roles = [], set()
    for snapshot in NodeSnapshot.objects.filter(
        current=True, node__deployment=deployment, node__valid_to=None
    ).select_related("node"):
        facts = snapshot.facts if isinstance(snapshot.facts, dict) else {}
        said = (facts.get("conditions") or {}).get(part.condition)
        readings.append((snapshot.node.name, "on" if said is True else "off" if said is False else ""))
        roles.add(snapshot.node.role or snapshot.role)
    other = part.applies_to == DISAGGREGATED and roles == {"unified"}
    return PartLine(part, not other, readings)
