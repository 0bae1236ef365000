"""The Fleet page: one headline over everything the reader may see, and a filtered, sorted table.

How all deployments stand is computed from a few narrow queries (risk cannot be sorted by
otherwise); what only the rows in sight need is loaded for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import CheckState
from kvaudit.server.audits.state.deployment_status import DeploymentStatus
from kvaudit.server.audits.state.status import statuses
from kvaudit.server.audits.state.tiers import Assessment, Tier, tier_of
from kvaudit.server.checklists.matrix import Controls
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.models import Deployment, NodeSnapshot
from kvaudit.server.incidents.assessments import assessed
from kvaudit.server.incidents.models import Incident, State
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import choice, position, text
from kvaudit.server.web.kit.parts.pool_bar import PoolBar, from_measures

PAGE_SIZE = 50
SORTS = {"risk": "Status", "name": "Deployment", "team": "Team", "audited": "Last audit"}
_RANK = {tier: number for number, tier in enumerate(Tier)}
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    """The table's state, as it stands in the URL."""

    q: str = text()
    team: str = text()
    engine: str = text()
    tier: str = choice(Tier)
    verdict: str = choice(Verdict)  # of addresses that were kept before there were tiers
    sort: str = choice(SORTS, "risk", narrows=False)
    after: str = position()
    before: str = position()


@dataclass(frozen=True, slots=True)
class Build:
    """An engine and version that nodes of a deployment run."""

    engine: str
    version: str


@dataclass(frozen=True, slots=True)
class IncidentMark:
    """An incident that is not closed. Its tenants are back in traffic where it is restored."""

    number: int
    state: str  # open, mitigated, restored

    @property
    def kind(self) -> str:
        """Of its shape (`kvaudit.server.web.kit.badges`)."""
        return "none" if self.state == State.RESTORED else "fail"


@dataclass(frozen=True, slots=True)
class FleetRow:
    id: int
    slug: str
    team: str
    model: str
    status: DeploymentStatus
    said: Assessment | None = None  # of the rows in sight, as what follows
    bar: PoolBar | None = None
    builds: tuple[Build, ...] = ()
    controls: Controls | None = None
    incidents: tuple[IncidentMark, ...] = ()  # those that are not closed, newest first

    @property
    def tier(self) -> Tier:
        return tier_of(self.status)

    @property
    def failing(self) -> list[str]:
        return list(dict.fromkeys(now.check for now in self.status.failing))

    @property
    def confirmed(self) -> datetime | None:
        """The last time that any check concluded anything."""
        return self.status.confirmed


class _Seen(NamedTuple):
    """A deployment as far as its row, and the plans that choose by team and engine, look at it."""

    pk: int
    slug: str
    team_id: int
    team: str
    engine: str
    model: str


def all_rows(user: User) -> list[FleetRow]:
    """Every active deployment that the user sees, with how it stands."""
    seen = Deployment.objects.visible_to(user).active()
    columns = ("pk", "slug", "team_id", "team__slug", "engine", "model")
    found = [_Seen(*row) for row in seen.values_list(*columns)]
    status_of = statuses(found)
    return [FleetRow(each.pk, each.slug, each.team, each.model, status_of[each.pk]) for each in found]


def matching(rows: Sequence[FleetRow], filters: Filters) -> list[FleetRow]:
    """Rows that satisfy the filters, in the order asked for."""
    kept = list(rows)
    if filters.q:
        words = filters.q.lower().split()
        kept = [r for r in kept if all(w in f"{r.slug} {r.team} {r.model}".lower() for w in words)]
    if filters.team:
        kept = [row for row in kept if row.team == filters.team]
    if filters.engine:
        running = _deployments_running(filters.engine)
        kept = [row for row in kept if row.id in running]
    if filters.tier:
        kept = [row for row in kept if row.tier == filters.tier]
    if filters.verdict:
        kept = [row for row in kept if row.status.verdict == filters.verdict]
    return sorted(kept, key=lambda row: sort_key(row, filters.sort))


def sort_key(row: FleetRow, sort: str) -> str:
    """The sort key as text: unique, and what the URL of a page carries."""
    if sort == "name":
        lead = ""
    elif sort == "team":
        lead = row.team
    elif sort == "audited":
        lead = f"{(row.confirmed or _LONG_AGO).timestamp():017.6f}"
    else:
        lead = str(_RANK[row.tier])
    return f"{lead}~{row.slug}"


def filled(rows: Sequence[FleetRow]) -> list[FleetRow]:
    """The rows in sight with reason, pool bar, versions, controls and incidents: a few queries for all."""
    ids = [row.id for row in rows]
    pools: dict[int, PoolBar | None] = {}
    for deployment_id, measures in (
        CheckState.objects.current()
        .filter(deployment_id__in=ids, node=None, check_id="pool")
        .values_list("deployment_id", "result__measures")
    ):
        pools[deployment_id] = from_measures(measures)
    builds: dict[int, set[Build]] = {}
    for deployment_id, engine, version in (
        NodeSnapshot.objects.filter(current=True, node__valid_to=None, node__deployment_id__in=ids)
        .order_by()
        .values_list("node__deployment_id", "engine", "version")
        .distinct()
    ):
        builds.setdefault(deployment_id, set()).add(Build(engine, version))
    controls = {
        row.deployment.pk: row.controls for row in Assessed.objects.filter(pk__in=ids).standings().rows
    }
    incidents: dict[int, list[IncidentMark]] = {}
    lasting = Incident.objects.lasting().filter(deployment_id__in=ids).order_by("-id")
    for deployment_id, number, state in lasting.values_list("deployment_id", "id", "state"):
        incidents.setdefault(deployment_id, []).append(IncidentMark(number, state))
    said = assessed({row.id: row.slug for row in rows}, {row.id: row.status for row in rows})
    return [
        replace(
            row,
            said=said[row.id],
            bar=pools.get(row.id),
            builds=tuple(sorted(builds.get(row.id, ()), key=lambda b: (b.engine, b.version))),
            controls=controls.get(row.id),
            incidents=tuple(incidents.get(row.id, ())),
        )
        for row in rows
    ]


def _deployments_running(engine: str) -> set[int]:
    """Deployments of which a node was read as this engine, or that are declared as it."""
    read = NodeSnapshot.objects.filter(current=True, node__valid_to=None, engine=engine)
    return {
        *read.values_list("node__deployment_id", flat=True),
        *Deployment.objects.filter(engine=engine).values_list("id", flat=True),
    }


def engines(user: User) -> list[str]:
    """Engines for the filter: those that were read from nodes the user sees."""
    return sorted(
        NodeSnapshot.objects.visible_to(user)
        .filter(current=True, node__valid_to=None)
        .order_by()
        .values_list("engine", flat=True)
        .distinct()
    )
