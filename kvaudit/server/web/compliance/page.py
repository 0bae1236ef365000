"""The Compliance page: who complies, since when, by waiver or truly. One matrix over everything the
reader may see; a page, a print and an export are cuts of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.utils import timezone

from kvaudit.server import clock
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.state.tiers import Assessment
from kvaudit.server.checklists import time_limits
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.items import Item
from kvaudit.server.checklists.matrix import WORST_FIRST, Matrix, MatrixRow
from kvaudit.server.checklists.models import Assessed, Attestation, Waiver
from kvaudit.server.incidents.assessments import assessments
from kvaudit.server.web.kit import listing, untrusted
from kvaudit.server.web.kit.listing import choice, parsed, position, text

SORTS = {"name": "Deployment", "risk": "Worst control", "team": "Team"}
MOST_LISTED = 10
_RANK = {status: number for number, status in enumerate((*WORST_FIRST, Status.NOT_APPLICABLE))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    """The page's state, as it stands in the URL. ``as_of`` is a day of the viewer's zone, "" for now; ``problem``
    says why another one than the address asks for is meant."""

    q: str = text()
    team: str = text()
    item: str = text()
    status: str = choice(Status)
    as_of: str = parsed(lambda _, given: read_day(given), narrows=False)
    sort: str = choice(SORTS, "name", narrows=False)
    after: str = position()
    before: str = position()

    @property
    def problem(self) -> str:
        return self.ignored.get("as_of", "")

    @property
    def moment(self) -> datetime | None:
        """The end of the day asked for; None for now."""
        return end_of_day(self.as_of)


def end_of_day(text: str) -> datetime | None:
    """The end of a past day in the viewer's zone; None for today, the future and what is no date."""
    try:
        day = date.fromisoformat(text)
        end = datetime.combine(day + timedelta(days=1), time(0), tzinfo=timezone.get_current_timezone())
        return end if end <= clock.now() else None
    except (ValueError, OverflowError):
        return None


def read_day(given: str) -> tuple[str, str]:
    """A past day, or why nothing is known of the end of that day, as a sentence. Today is now: neither."""
    text = untrusted.query_text(given)
    if not given.strip() or end_of_day(text) is not None:
        return text, ""
    shown = untrusted.plain(given, 40)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return "", f"“{shown}” is no date: write 2026-09-01."
    today = timezone.localdate()
    if day == today:
        return "", ""
    return "", (
        f"{day} lies in the future: nothing is known of it." if day > today else f"“{shown}” is too long ago."
    )


@dataclass(frozen=True, slots=True)
class TeamLine:
    """How the deployments of one team (or of all: ``team`` is "") stand."""

    team: str
    total: int
    by_status: Mapping[Status, int]
    complying: Mapping[str, tuple[int, int]]  # item key -> (complying by any of the three, applicable)

    @property
    def counts(self) -> list[tuple[Status, int]]:
        return [(status, self.by_status.get(status, 0)) for status in reversed(WORST_FIRST)]


def matrix_of(user: User, moment: datetime | None) -> Matrix:
    """Everything that the user sees, at a moment."""
    return Assessed.objects.visible_to(user).existing(moment).standings(moment=moment)


def columns_of(matrix: Matrix, rows: Sequence[MatrixRow]) -> list[Item]:
    """The shipped items, and the own items of the teams in sight."""
    teams = {row.deployment.team_id for row in rows}
    return [item for item in matrix.items if item.team_id is None or item.team_id in teams]


def matching(rows: Sequence[MatrixRow], filters: Filters) -> list[MatrixRow]:
    """Rows that satisfy the filters, in the order asked for."""
    kept = list(rows)
    if words := filters.q.lower().split():
        kept = [row for row in kept if all(word in _searched(row) for word in words)]
    if filters.team:
        kept = [row for row in kept if row.deployment.team.slug == filters.team]
    if filters.item:
        kept = [row for row in kept if filters.item in row.cells]
    if filters.status:
        kept = [row for row in kept if _status(row, filters.item) == filters.status]
    return sorted(kept, key=lambda row: sort_key(row, filters.sort))


def _searched(row: MatrixRow) -> str:
    each = row.deployment
    return f"{each.slug} {each.team.slug} {each.owner}".lower()


def _status(row: MatrixRow, item: str) -> Status:
    return row.statuses[item] if item else row.status


def sort_key(row: MatrixRow, sort: str) -> str:
    """The sort key as text: unique, and what the URL of a page carries."""
    if sort == "risk":
        return f"{_RANK[row.status]}~{row.deployment.slug}"
    return f"{row.deployment.team.slug if sort == 'team' else ''}~{row.deployment.slug}"


def said_of(rows: Sequence[MatrixRow], filters: Filters) -> dict[int, Assessment]:
    """Deployment id -> its status at the moment that is shown: the one that every page says."""
    return assessments([row.deployment for row in rows], moment=filters.moment)


def roll_up(rows: Sequence[MatrixRow], name: str = "") -> TeamLine:
    by_status = Counter(row.status for row in rows)
    # Most deployments share their statuses with others (`checklists.matrix.MatrixRows`).
    alike = Counter(id(row.statuses) for row in rows)
    pairs: Counter[tuple[str, Status]] = Counter()
    for which, statuses in {id(row.statuses): row.statuses for row in rows}.items():
        count = alike[which]
        for pair in statuses.items():
            pairs[pair] += count
    complying: Counter[str] = Counter()
    applicable: Counter[str] = Counter()
    for (key, status), count in pairs.items():
        if status is not Status.NOT_APPLICABLE:
            applicable[key] += count
            complying[key] += count if status.complies else 0
    return TeamLine(
        name, len(rows), by_status, {key: (complying[key], applicable[key]) for key in applicable}
    )


def by_team(rows: Sequence[MatrixRow]) -> list[TeamLine]:
    """One line per team, by name."""
    teams: dict[str, list[MatrixRow]] = {}
    for row in rows:
        teams.setdefault(row.deployment.team.slug, []).append(row)
    return [roll_up(teams[name], name) for name in sorted(teams)]


def sentence(line: TeamLine) -> tuple[Status, str]:
    """The page in one sentence. By attestation and by waiver are said apart, unknown as unknown."""
    total, by = line.total, line.by_status
    complying = sum(by.get(status, 0) for status in (Status.PASS, Status.ATTESTED, Status.WAIVED))
    noun = f"deployment{'' if total == 1 else 's'}"
    parts = [
        text
        for count, text in (
            (by.get(Status.PASS, 0), f"{by.get(Status.PASS, 0):,} by checks alone"),
            (by.get(Status.ATTESTED, 0), f"{by.get(Status.ATTESTED, 0):,} with an attestation"),
            (by.get(Status.WAIVED, 0), f"{by.get(Status.WAIVED, 0):,} only with a waiver"),
        )
        if count
    ]
    said = f"{complying:,} of {total:,} {noun} {'complies' if complying == 1 else 'comply'} with every item"
    if parts:
        said += f": {', '.join(parts)}"
    worst = next((status for status in WORST_FIRST if by.get(status)), Status.INCONCLUSIVE)
    return worst, said


@dataclass(frozen=True, slots=True)
class Ending:
    """A claim in force that ends soon."""

    what: str  # waiver or attestation
    pk: int
    item: str
    place: str
    owner: str
    expires_at: datetime
    author: str


def ending(user: User, now: datetime, days: int | None = None) -> list[Ending]:
    """Waivers and attestations in force that end within ``days`` (default: when people are warned);
    soonest first. Two queries."""
    before = now + (time_limits.warning() if days is None else timedelta(days=days))
    found = []
    for what, model, author in (("waiver", Waiver, "requester"), ("attestation", Attestation, "author")):
        rows = model.objects.visible_to(user).ending(now, before)
        columns = ("pk", "item", "deployment__slug", "deployment__owner", "team__slug", "expires_at")
        for pk, item, slug, owner, team, expires_at, name in rows.values_list(
            *columns, f"{author}__username"
        ):
            found.append(
                Ending(
                    what=what,
                    pk=pk,
                    item=item,
                    place=slug or f"all of {team or ''}",
                    owner=owner or "",
                    expires_at=expires_at,
                    author=name,
                )
            )
    return sorted(found, key=lambda each: (each.expires_at, each.place, each.item))
