"""The weekly summary for managers: what changed, what ends, what is overdue, who owns it. One set of
facts, shown as a page and written as Markdown (`summary_markdown`)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta

from django.utils import timezone

from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import Overdue, StateChange
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.matrix import Matrix, MatrixRow
from kvaudit.server.checklists.models import Assessed, Attestation, Decision, Waiver
from kvaudit.server.web.compliance import page as compliance
from kvaudit.server.web.compliance.page import Ending, TeamLine
from kvaudit.server.web.compliance.summary.incident_week import IncidentLine, incidents_of
from kvaudit.server.web.compliance.summary.lapsing import Lapsing, lapsing
from kvaudit.server.web.kit.parts.action_items import Action, Filters, listed

MOST_ITEMS = 100
MOST_EVENTS = 100
_WEEK = re.compile(r"(2\d{3})-W(\d{2})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Week:
    """Seven days of the viewer's zone from a Monday; ``end`` is now for the week that is not over."""

    name: str  # 2026-W48
    start: datetime
    end: datetime
    before: str
    after: str  # "" for the current week


@dataclass(frozen=True, slots=True)
class ItemChange:
    deployment: str
    team: str
    owner: str
    item: str
    title: str
    before: Status | None  # None: it did not exist then
    after: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    at: datetime
    deployment: str
    what: str
    summary: str
    run_id: int | None = None


@dataclass(frozen=True, slots=True)
class Late:
    deployment: str
    plan: str
    since: datetime
    owner: str
    contact: str


@dataclass(slots=True)
class Owner:
    """What waits for one owner: names of deployments by how they stand, and what else."""

    name: str
    contact: str
    by_status: dict[Status, list[str]] = field(default_factory=dict)
    overdue: int = 0
    ending: int = 0
    actions: int = 0  # items of incidents that are to do

    @property
    def open(self) -> int:
        return sum(len(names) for names in self.by_status.values())


@dataclass(frozen=True, slots=True)
class Summary:
    week: Week
    now: TeamLine
    then: TeamLine
    standing: Status
    sentence: str
    worse: Sequence[ItemChange]
    covered: Sequence[ItemChange]  # not better: somebody's word stands in
    better: Sequence[ItemChange]
    left_out: int
    events: Sequence[Event]
    decisions: Sequence[Event]
    endings: Sequence[Ending]
    lapsing: Sequence[Lapsing]
    late: Sequence[Late]
    incidents: Sequence[IncidentLine]
    actions: Sequence[Action]  # to do, as of now
    owners: Sequence[Owner]


def week_of(text: str, now: datetime) -> Week:
    """The ISO week named (2026-W48), else the one that holds ``now``; weeks to come are the current."""
    today = timezone.localtime(now).date()
    monday = today - timedelta(days=today.weekday())
    if match := _WEEK.match(text):
        with contextlib.suppress(ValueError):  # there is no week 60
            monday = min(monday, date.fromisocalendar(int(match[1]), int(match[2]), 1))
    zone = timezone.get_current_timezone()
    start, end = (datetime.combine(monday + timedelta(days=days), time(0), tzinfo=zone) for days in (0, 7))
    following = monday + timedelta(days=7)
    return Week(
        name=_name(monday),
        start=start,
        end=min(end, now),
        before=_name(monday - timedelta(days=7)),
        after=_name(following) if following <= today else "",
    )


def _name(monday: date) -> str:
    year, week, _ = monday.isocalendar()
    return f"{year}-W{week:02d}"


def summary_of(user: User, week: Week, now: datetime) -> Summary:
    """Everything that the user sees. What ends and what is overdue is told as of now, whatever the week."""
    past, matrix = Assessed.objects.visible_to(user).standings_between(week.start, week.end)
    worse, covered, better = changes(past, matrix)
    everything = compliance.roll_up(matrix.rows)
    standing, sentence = compliance.sentence(everything)
    endings, lapse = compliance.ending(user, now), lapsing(user, now)
    late = _late(user)
    actions = listed(user, Filters(), now, MOST_EVENTS).rows
    return Summary(
        week=week,
        now=everything,
        then=compliance.roll_up(past.rows),
        standing=standing,
        sentence=sentence,
        worse=worse[:MOST_ITEMS],
        covered=covered[:MOST_ITEMS],
        better=better[:MOST_ITEMS],
        left_out=sum(max(0, len(each) - MOST_ITEMS) for each in (worse, covered, better)),
        events=_events(user, week),
        decisions=_decisions(user, week),
        endings=endings,
        lapsing=lapse,
        late=late,
        incidents=incidents_of(user, week.start, week.end),
        actions=actions,
        owners=owners(matrix.rows, late, [*endings, *lapse], actions),
    )


_ORDER = {status: rank for rank, status in enumerate(
    (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.WAIVED, Status.ATTESTED, Status.PASS)
)}  # fmt: skip


_WORDS = (Status.WAIVED, Status.ATTESTED)


def changes(then: Matrix, now: Matrix) -> tuple[list[ItemChange], list[ItemChange], list[ItemChange]]:
    """Cells that stand otherwise than they did: (worse, covered by somebody's word, better), worst first."""
    before = {row.deployment.pk: row for row in then.rows}
    worse: list[ItemChange] = []
    covered: list[ItemChange] = []
    better: list[ItemChange] = []
    for row in now.rows:
        old = before.get(row.deployment.pk)
        for key, status in row.statuses.items():
            was = old.statuses.get(key) if old is not None else None
            if was is status or Status.NOT_APPLICABLE in (was, status):
                continue
            # A deployment that is new has nothing behind it: evidence against it is news, or whose word covers it.
            if was is None and status not in (Status.FAIL, *_WORDS):
                continue
            cell = row.cells[key]
            change = ItemChange(
                deployment=row.deployment.slug,
                team=row.deployment.team.slug,
                owner=row.deployment.owner,
                item=key,
                title=cell.item.title,
                before=was,
                after=cell.status,
                reason=cell.reason,
            )
            if status in _WORDS and (was is None or _ORDER[status] > _ORDER[was]):
                covered.append(change)
            elif was is None or _ORDER[status] < _ORDER[was]:
                worse.append(change)
            else:
                better.append(change)
    for found in (worse, covered, better):
        found.sort(key=lambda each: (_ORDER[each.after], each.deployment, each.item))
    return worse, covered, better


def owners(
    rows: Sequence[MatrixRow],
    late: Sequence[Late],
    endings: Sequence[Ending | Lapsing],
    actions: Sequence[Action] = (),
) -> list[Owner]:
    """Who has something to do, most first. Deployments without an owner are listed under nobody's name."""
    found: dict[str, Owner] = {}

    def of(name: str, contact: str = "") -> Owner:
        owner = found.setdefault(name, Owner(name, contact))
        owner.contact = owner.contact or contact
        return owner

    for row in rows:
        if row.status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE):
            owner = of(row.deployment.owner, row.deployment.contact)
            owner.by_status.setdefault(row.status, []).append(row.deployment.slug)
    for each in late:
        of(each.owner, each.contact).overdue += 1
    for ending in endings:
        if ending.owner:
            of(ending.owner).ending += 1
    for action in actions:
        of(action.owner).actions += 1
    return sorted(
        found.values(),
        key=lambda each: (-len(each.by_status.get(Status.FAIL, ())), -each.open, -each.overdue, each.name),
    )


def _events(user: User, week: Week) -> list[Event]:
    """Capacity and version changes, and audits that were overdue or lost, newest first.

    Ids grow with time, so the rows before the week are cut off by the id of the last of them: the index
    of ids is walked back to the week's start and no further.
    """
    seen = StateChange.objects.visible_to(user)
    boundary = StateChange.objects.filter(at__lt=week.start).order_by("-id").values("id")[:1]
    first = boundary.first()
    rows = seen.filter(at__gte=week.start, at__lt=week.end).exclude(what=StateChange.What.VERDICT)
    if first is not None:
        rows = rows.filter(id__gt=first["id"])
    return [
        Event(row.at, row.deployment.slug, row.what, row.summary, row.run_id)
        for row in rows.select_related("deployment").order_by("-id")[:MOST_EVENTS]
    ]


def _decisions(user: User, week: Week) -> list[Event]:
    """Attestations made, waivers decided: somebody's word that counts from now on, or does not."""
    found = []
    scope = ("deployment__slug", "team__slug")
    made = Attestation.objects.visible_to(user).filter(valid_from__gte=week.start, valid_from__lt=week.end)
    for slug, team, at, item, author in made.values_list(*scope, "valid_from", "item", "author__username")[
        :MOST_EVENTS
    ]:
        found.append(Event(at, slug or f"all of {team}", "attested", f"item {item} by {author}"))
    decided = Waiver.objects.visible_to(user).filter(decided_at__gte=week.start, decided_at__lt=week.end)
    for slug, team, at, item, decision, asked, by in decided.values_list(
        *scope, "decided_at", "item", "decision", "requester__username", "decided_by__username"
    )[:MOST_EVENTS]:
        word = {Decision.APPROVED: "waived", Decision.REFUSED: "waiver refused"}.get(
            Decision(decision), "waiver withdrawn"
        )
        said = f"item {item}, asked for by {asked}, decided by {by or ''}"
        found.append(Event(at, slug or f"all of {team}", word, said))
    return sorted(found, key=lambda event: event.at, reverse=True)


def _late(user: User) -> list[Late]:
    rows = Overdue.objects.open().visible_to(user).filter(deployment__retired_at=None)
    return [
        Late(row.deployment.slug, row.plan.name, row.since, row.deployment.owner, row.deployment.contact)
        for row in rows.select_related("deployment", "plan").order_by("since", "pk")[:MOST_EVENTS]
    ]
