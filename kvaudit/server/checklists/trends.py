"""Counts cells once a day for the trend, so that a year of it need not be computed again for every page. A
day's rows say how cells stood at its end (UTC), and are exactly what `standings` says for then."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from django.db import connection, transaction
from django.db.models import Min

from kvaudit.server import clock
from kvaudit.server.checklists.models import Assessed, DailyCount

MOST_DAYS = 400
"""Days that are kept up by themselves; older ones are made by `rebuild`."""

_LOCK = 0x6B76_6463  # "kvdc": one advisory lock for whoever writes counts


def end_of(day: date) -> datetime:
    """The first instant after the day, in UTC: what holds then is what the day ended with."""
    return datetime.combine(day + timedelta(days=1), time(0), tzinfo=UTC)


def take() -> int:
    """Count the days that are over and were not counted yet, newest last; returns how many."""
    yesterday = clock.now().astimezone(UTC).date() - timedelta(days=1)
    first = _first_day()
    if first is None:
        return 0
    start = max(first, yesterday - timedelta(days=MOST_DAYS - 1))
    there = set(DailyCount.objects.filter(day__gte=start).values_list("day", flat=True).distinct())
    days = [day for day in _days(start, yesterday) if day not in there]
    return sum(1 for day in days if rebuild_day(day))


def rebuild(first: date, last: date) -> int:
    """Make the counts of these days again out of the intervals; returns how many days. Days that are
    not over are left alone: their end is not known."""
    yesterday = clock.now().astimezone(UTC).date() - timedelta(days=1)
    days = list(_days(first, min(last, yesterday)))
    for day in days:
        rebuild_day(day)
    return len(days)


@transaction.atomic
def rebuild_day(day: date) -> bool:
    """Replace one day's rows; False when no deployment existed then."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    moment = end_of(day)
    counts = Assessed.objects.existing(moment).standings(moment=moment).counts()
    DailyCount.objects.filter(day=day).delete()
    DailyCount.objects.bulk_create(
        DailyCount(day=day, team_id=team, item=item, status=status.value, count=count)
        for (team, item, status), count in sorted(counts.items())
    )
    return bool(counts)


def _first_day() -> date | None:
    first: datetime | None = Assessed.objects.aggregate(first=Min("created_at"))["first"]
    return None if first is None else first.astimezone(UTC).date()


def _days(first: date, last: date) -> Iterable[date]:
    day = first
    while day <= last:
        yield day
        day += timedelta(days=1)
