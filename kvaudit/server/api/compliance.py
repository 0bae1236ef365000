"""``/api/v1/compliance``: how every checklist item stands, now or at a past moment: the same standings as
on the page and in the export."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.errors import HttpError
from pydantic import AwareDatetime, BaseModel, Field

from kvaudit.server import clock
from kvaudit.server.accounts.models import ApiToken, TokenScope
from kvaudit.server.api.bearer import require_scope, visible_deployment
from kvaudit.server.api.schemas import Problem, StatusFields, Verdict, status_fields
from kvaudit.server.audits.state.tiers import Assessment
from kvaudit.server.checklists.evaluation import Cell, Status
from kvaudit.server.checklists.matrix import MatrixRow
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.incidents.assessments import assessments

router = Router()

MOST = 500
EARLIEST_YEAR, LATEST_YEAR = 2000, 2199
Standing = Literal["pass", "attested", "waived", "not applicable", "inconclusive", "error", "fail"]


class ItemLine(BaseModel):
    item: str
    title: str
    status: Standing = Field(description="attested and waived are views: checks_say is what the checks say.")
    checks_say: Verdict | None = Field(description="Null where the item is not applicable.")
    warn: bool
    since: datetime
    until: datetime | None = Field(description="When it ends by itself; null when it does not.")
    reason: str
    leak: bool = Field(description="The last word of a check was a verified leak; no waiver hides it.")
    runs: list[int] = Field(description="The runs it rests on.")
    attestation: int | None
    waiver: int | None = Field(description="A waiver in force, whether it changes anything or not.")


class ComplianceLine(StatusFields):
    deployment: str
    team: str
    owner: str
    contact: str
    status: Standing = Field(description="The worst of its items: another question than its tier.")
    controls_met: int = Field(description="Items met by checks, attestation or waiver.")
    controls: int = Field(description="Items that apply to it.")
    since: datetime
    overdue_since: datetime | None
    items: list[ItemLine]


class ComplianceAnswer(BaseModel):
    moment: datetime
    deployments: list[ComplianceLine]
    next: str | None = Field(description="Give it as `after` for the next deployments; null at the end.")


class _TokenRequest(HttpRequest):
    auth: ApiToken


class Wanted(Schema):
    """What is asked for."""

    as_of: AwareDatetime | None = Field(None, description="A past moment with its offset; default: now.")
    team: str = Field("", max_length=100)
    after: str = Field("", max_length=100, description="Deployments after this slug.")
    limit: int = Field(100, ge=1, le=MOST)


@router.get(
    "/compliance",
    response={200: ComplianceAnswer, 401: Problem, 403: Problem, 422: Problem},
    summary="Who complies with what, since when, truly or by whose word?",
)
def compliance(request: _TokenRequest, wanted: Query[Wanted]) -> ComplianceAnswer:
    require_scope(request.auth, TokenScope.READ.value)
    moment = _moment(wanted.as_of)
    seen = Assessed.objects.visible_to_token(request.auth).existing(moment).order_by("slug")
    if wanted.team:
        seen = seen.filter(team__slug=_clean(wanted.team))
    if wanted.after:
        seen = seen.filter(slug__gt=_clean(wanted.after))
    matrix = seen[: wanted.limit + 1].standings(moment=moment)
    rows, more = matrix.rows[: wanted.limit], len(matrix.rows) > wanted.limit
    said = assessments([row.deployment for row in rows], moment=moment)
    return ComplianceAnswer(
        moment=matrix.moment,
        deployments=[_line(row, said[row.deployment.pk]) for row in rows],
        next=rows[-1].deployment.slug if more else None,
    )


@router.get(
    "/deployments/{slug}/compliance",
    response={200: ComplianceLine, 401: Problem, 403: Problem, 404: Problem, 422: Problem},
    summary="How one deployment stands.",
)
def of_deployment(request: _TokenRequest, slug: str, as_of: AwareDatetime | None = None) -> ComplianceLine:
    deployment = visible_deployment(request.auth, slug, TokenScope.READ.value)
    moment = _moment(as_of)
    matrix = Assessed.objects.filter(pk=deployment.pk).standings(moment=moment)
    return _line(matrix.rows[0], assessments([deployment], moment=moment)[deployment.pk])


def _moment(as_of: datetime | None) -> datetime | None:
    """None for now; clocks differ a little, so the next minutes are now as well."""
    now = clock.now()
    if as_of is None:
        return None
    if not EARLIEST_YEAR <= as_of.year <= LATEST_YEAR:  # before arithmetic with offsets leaves the calendar
        raise HttpError(422, f"as_of must be between the years {EARLIEST_YEAR} and {LATEST_YEAR}.")
    if as_of > now:
        if as_of <= now + timedelta(minutes=5):
            return None
        raise HttpError(422, "as_of is in the future: nothing is known of that.")
    return as_of


def _clean(text: str) -> str:
    return text.replace("\x00", "")


def _line(row: MatrixRow, said: Assessment) -> ComplianceLine:
    return ComplianceLine(
        **status_fields(said),
        controls_met=row.controls.met,
        controls=row.controls.total,
        deployment=row.deployment.slug,
        team=row.deployment.team.slug,
        owner=row.deployment.owner,
        contact=row.deployment.contact,
        status=row.status.value,
        since=row.since,
        overdue_since=row.overdue_since,
        items=[ItemLine(**_item(key, cell)) for key, cell in row.cells.items()],
    )


def _item(key: str, cell: Cell) -> dict[str, Any]:
    attested = cell.attestation if cell.status is Status.ATTESTED else None
    return {
        "item": key,
        "title": cell.item.title,
        "status": cell.status.value,
        "checks_say": cell.verdict.value if cell.verdict else None,
        "warn": cell.warn,
        "since": cell.since,
        "until": cell.until,
        "reason": cell.reason,
        "leak": cell.leak,
        "runs": sorted({interval.run_id for interval in cell.intervals}),
        "attestation": attested.pk if attested else None,
        "waiver": cell.waiver.pk if cell.waiver is not None else None,
    }
