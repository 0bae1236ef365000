"""Computes when a plan is due: cron in a time zone, or an interval. Pure; all moments in and out are UTC.

Cron has five fields and follows Debian's cron at clock changes: a fixed local time that does not
exist runs when the clock has jumped, one that exists twice runs once; minutes or hours written with
``*`` follow real time, so a quarter-hourly plan runs in every quarter of a repeated hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

LARGEST_WALK = 600_000
"""Slots walked at most in one go: more than a year of minutes, about three seconds."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Exactly one of ``cron`` and ``interval`` (seconds); ``anchor`` is a slot of the interval."""

    cron: str = ""
    zone: str = "UTC"
    interval: int | None = None
    anchor: datetime | None = None

    def problem(self) -> str:
        """ "" or a sentence that says what is wrong with this schedule."""
        if bool(self.cron) == (self.interval is not None):
            return "A schedule is either a cron expression or an interval in seconds: give exactly one."
        if self.interval is not None:
            return "" if self.interval > 0 else "An interval is at least one second."
        if len(self.cron.split()) != 5:
            return (
                f"{self.cron!r} is not a cron expression: five fields are needed, for instance '0 2 * * *'."
            )
        try:
            next(self._walk(datetime(2026, 1, 1, tzinfo=UTC)))
        except CronSimError as fault:
            return f"{self.cron!r} is not a cron expression: {fault}."
        except StopIteration:
            return f"{self.cron!r} never comes: no such date in the next fifty years."
        except (KeyError, ValueError):  # ZoneInfo: unknown key, or a path
            return f"{self.zone!r} is not a time zone: write an IANA name such as Europe/Berlin."
        return ""

    def next_after(self, moment: datetime) -> datetime:
        """The first slot later than ``moment``."""
        return next(self.after(moment))

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Slots later than ``moment``, in order, without end."""
        if self.interval is not None:
            step = timedelta(seconds=self.interval)
            anchor = self.anchor or datetime(2026, 1, 1, tzinfo=UTC)
            slot = anchor + ((moment - anchor) // step + 1) * step
            while True:
                yield slot
                slot += step
        else:
            last = moment
            for slot in self._walk(moment):
                if slot > last:  # a local time that exists twice is seen from its second hour too
                    yield slot
                    last = slot

    def between(self, first: datetime, before: datetime) -> Iterator[datetime]:
        """Slots from ``first`` (inclusive) to ``before`` (exclusive), at most `LARGEST_WALK`."""
        for count, slot in enumerate(self.after(first - timedelta(microseconds=1))):
            if slot >= before or count >= LARGEST_WALK:
                return
            yield slot

    def newest(self, first: datetime, now: datetime) -> datetime:
        """The last slot not later than ``now``, at least ``first`` (itself a slot, not later than now)."""
        if self.interval is not None:
            return max(first, self.next_after(now) - timedelta(seconds=self.interval))
        # A walk from far back would cost seconds: no cron slot is rarer than the years of a leap day.
        start = max(first, now - timedelta(days=366)) if self._comes_yearly(now) else first
        last = first
        for slot in self.between(start, now + timedelta(microseconds=1)):
            last = slot
        return last

    def period(self, around: datetime) -> timedelta:
        """The longest gap between neighbours of the next few slots: what an expiry is measured by."""
        if self.interval is not None:
            return timedelta(seconds=self.interval)
        slots: deque[datetime] = deque(maxlen=6)
        for slot in self.after(around):
            slots.append(slot)
            if len(slots) == 6:
                break
        return max((later - earlier for earlier, later in pairwise(slots)), default=timedelta(0))

    def _comes_yearly(self, now: datetime) -> bool:
        return self.next_after(now - timedelta(days=366)) <= now

    def _walk(self, moment: datetime) -> Iterator[datetime]:
        local = moment.astimezone(ZoneInfo(self.zone) if self.zone != "UTC" else UTC)
        for slot in CronSim(self.cron, local):
            yield slot.astimezone(UTC)


def newest_and_older(
    schedule: Schedule, first: datetime, before: datetime, most: int
) -> tuple[Sequence[datetime], int, datetime | None]:
    """Slots in [first, before): the newest ``most`` in order, the number of older ones, and the last
    of those older ones."""
    newest: deque[datetime] = deque()
    older, last_older = 0, None
    if schedule.interval is not None:
        step = timedelta(seconds=schedule.interval)
        start = schedule.next_after(first - timedelta(microseconds=1))
        total = max(0, -((start - before) // step))
        older = max(0, total - most)
        if older:
            last_older = start + (older - 1) * step
        return [start + index * step for index in range(older, total)], older, last_older
    for slot in schedule.between(first, before):
        newest.append(slot)
        if len(newest) > most:
            last_older = newest.popleft()
            older += 1
    return list(newest), older, last_older
