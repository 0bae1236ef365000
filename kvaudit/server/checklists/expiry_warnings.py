"""Warns people, once and in good time, that a waiver or an attestation ends; and finds waivers that waive
nothing. Re-opening needs no job: what has expired does not count when a page is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.checklists import time_limits
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.matrix import Matrix, MatrixRow
from kvaudit.server.checklists.models import Attestation, Waiver
from kvaudit.server.checklists.scope import Scope
from kvaudit.server.notify.models import Event
from kvaudit.server.notify.services import enqueue


def warn_of_expiry() -> int:
    """Put a message into the outbox for every claim in force that ends soon and was not told of yet;
    returns how many. Safe to run twice at once."""
    now = clock.now()
    before = now + time_limits.warning()
    return sum(
        _warn(model, what, now, before) for model, what in ((Waiver, "waiver"), (Attestation, "attestation"))
    )


@transaction.atomic
def _warn(model: Any, what: str, now: datetime, before: datetime) -> int:
    rows = list(
        model.objects.ending(now, before)
        .filter(warned_at=None)
        .select_for_update(skip_locked=True, of=("self",))
        .select_related("deployment__team", "team")[:1_000]
    )
    for row in rows:
        scope = Scope.of(row.deployment, row.team)
        days = max(0, (row.expires_at - now).days)
        left = f"in {days} day{'' if days == 1 else 's'}"
        subject = f"{scope}: the {what} of item {row.item} ends on {row.expires_at:%Y-%m-%d} (UTC)"
        path = f"/waivers/{row.pk}/" if what == "waiver" else f"/attestations/{row.pk}/"
        enqueue(
            event=Event.EXPIRING.value,
            subject=subject,
            payload={
                "event": Event.EXPIRING.value,
                "team": scope.team.slug,
                "summary": f"{subject}, {left}. Then the item stands as its checks say.",
                "next": "Meet the item, or renew before it ends.",
                "what": what,
                "item": row.item,
                "deployment": scope.deployment.slug if scope.deployment else "",
                "expires_at": row.expires_at.isoformat(),
                "url": f"{settings.BASE_URL}{path}",
            },
            team=scope.team,
        )
    model.objects.filter(pk__in=[row.pk for row in rows]).update(warned_at=now)
    return len(rows)


@dataclass(frozen=True, slots=True)
class IdleWaiver:
    """A waiver in force that waives nothing, and why."""

    waiver: Waiver
    why: str


def idle_waivers(waivers: Sequence[Waiver], matrix: Matrix) -> list[IdleWaiver]:
    """Those of ``waivers`` that change no cell of ``matrix``. Both must be of the same moment, and the
    matrix must hold every deployment that the waivers are for."""
    of_deployment = {row.deployment.pk: [row] for row in matrix.rows}
    of_team: dict[int, list[MatrixRow]] = defaultdict(list)
    for row in matrix.rows:
        of_team[row.deployment.team_id].append(row)
    found = []
    for waiver in waivers:
        if waiver.deployment_id is not None:
            concerned = of_deployment.get(waiver.deployment_id, [])
        else:
            concerned = of_team.get(waiver.team_id or 0, [])
        cells = [row.cells[waiver.item] for row in concerned if waiver.item in row.cells]
        if not concerned:
            found.append(IdleWaiver(waiver, "there is no such deployment any more"))
        elif not cells:
            found.append(IdleWaiver(waiver, f"the checklist has no item {waiver.item} any more"))
        elif any(
            cell.status is Status.WAIVED and cell.waiver is not None and cell.waiver.pk == waiver.pk
            for cell in cells
        ):
            continue
        elif any(cell.leak for cell in cells):
            found.append(IdleWaiver(waiver, "it cannot waive a verified leak"))
        elif any(cell.waiver is not None and cell.waiver.pk != waiver.pk for cell in cells):
            found.append(IdleWaiver(waiver, "narrower waivers cover what it is for"))
        else:
            found.append(IdleWaiver(waiver, "the item complies without it"))
    return found
