"""Writes times on pages: the viewer's zone in sight, UTC in the title, an age where an age is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.server import clock
from kvaudit.server.web.kit.untrusted import escaped

_STEPS: tuple[tuple[float, str], ...] = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """Two units at most: ``45 s``, ``3 min``, ``2 h 5 min``, ``12 d``."""
    left = int(abs(seconds))
    if left < 60:
        return f"{left} s"
    if left < 3_600:
        return f"{left // 60} min"
    large, small, names = (86_400, 3_600, ("d", "h")) if left >= 86_400 else (3_600, 60, ("h", "min"))
    count, rest = left // large, left % large // small
    # From the third day on, hours no longer matter to anybody.
    return f"{count} {names[0]}" + (
        f" {rest} {names[1]}" if rest and not (names[0] == "d" and count > 2) else ""
    )


def brief(length: timedelta) -> str:
    """One unit, no space: ``45s``, ``3min``, ``5h``, ``12d``."""
    seconds = abs(length.total_seconds())
    for size, name in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)}{name}"
    return "0s"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """``3 min ago``, ``in 2 h``, ``now``."""
    seconds = ((now or clock.now()) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(seconds)}"


def stamp(moment: datetime | None, absent: str = "never") -> SafeString:
    """A time element in the active zone."""
    if moment is None:
        return format_html('<span class="soft">{}</span>', absent)
    local = timezone.localtime(moment)
    return _element(moment, f"{local:%Y-%m-%d %H:%M:%S} {_zone_name(local)}")


def age(moment: datetime | None, now: datetime | None = None, absent: str = "never") -> SafeString:
    """How long ago or ahead, with the instant in the title."""
    if moment is None:
        return format_html('<span class="soft">{}</span>', absent)
    return _element(moment, ago(moment, now))


def due(moment: datetime | None, now: datetime | None = None, lead: str = "") -> SafeString:
    """``in 40 min`` after ``lead``; a due time that has passed is said as such."""
    instant = now or clock.now()
    if moment is not None and moment < instant:
        return format_html("due {}", age(moment, instant))
    return format_html("{}{}", lead if moment else "", age(moment, instant, "not planned"))


def _zone_name(local: datetime) -> str:
    name = local.tzname() or ""
    # Zones without letters of their own are named "+03"; write the offset out in full then.
    return name if name[:1].isalpha() else f"{local:%z}"


def _element(moment: datetime, shown: str) -> SafeString:
    utc = moment.astimezone(UTC)
    day, clock = utc.isoformat()[:10], utc.isoformat()[11:19]
    # By hand: a page has hundreds.
    return SafeString(
        f'<time datetime="{day}T{clock}Z" title="{day} {clock} UTC" class="nowrap">{escaped(shown)}</time>'
    )


def span(value: timedelta | float | None) -> str:
    """A length of time; empty for none."""
    if value is None:
        return ""
    return duration(value.total_seconds() if isinstance(value, timedelta) else value)


def parse_moment(text: str, *, end: bool = False) -> datetime | None:
    """A date or a time in the viewer's zone; a date means its beginning, with ``end`` its end."""
    zone = timezone.get_current_timezone()
    try:
        day = parse_date(text)
        if day is not None:
            found = datetime.combine(day + timedelta(days=1) if end else day, time(), zone)
        else:
            parsed = parse_datetime(text)
            if parsed is None:
                return None
            found = parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)
        return found.astimezone(UTC) if 1970 <= found.year <= 9000 else None
    except (ValueError, OverflowError):
        return None
