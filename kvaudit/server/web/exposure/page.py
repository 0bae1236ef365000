"""The Exposure page: the window out of the URL, one sentence that is never a plain no, a bar and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from kvaudit.server.inquiries.exposure.timespans import Span, SpanStatus, Statement
from kvaudit.server.inquiries.models import RequestLog
from kvaudit.server.web.kit import times, untrusted
from kvaudit.server.web.kit.times import parse_moment

WIDTH = 1000.0  # units of the drawing's viewBox
DEFAULT = timedelta(days=30)
LONGEST = timedelta(days=3_660)
CSS = {
    SpanStatus.UNTESTED: "untested",
    SpanStatus.LEAKING: "leaking",
    SpanStatus.DANGER: "danger",
    SpanStatus.BOUNDED: "bounded",
}
WORDS = {
    SpanStatus.UNTESTED: "not tested",
    SpanStatus.LEAKING: "shown leaking",
    SpanStatus.DANGER: "danger zone open",
    SpanStatus.BOUNDED: "no leak found within the bound",
}
"""What people read; files keep the values."""
FILLS = {"untested": "url(#hatch-unsure)", "danger": "url(#hatch-danger)"}  # drawn in kit/shapes.html
VERDICTS = {
    SpanStatus.UNTESTED: "inconclusive",
    SpanStatus.LEAKING: "fail",
    SpanStatus.DANGER: "fail",
    SpanStatus.BOUNDED: "pass",
}
MEANING = {
    SpanStatus.UNTESTED: "No valid pass of canary and rejection on one fingerprint covers this time, and nothing was "
    "found: not known.",
    SpanStatus.LEAKING: "A check saw foreign text, or answers that did not come from their prompts, until the same "
    "check said otherwise or the configuration changed.",
    SpanStatus.DANGER: "Prompts longer than the pool would be accepted and reach the path that leaks, and nothing has "
    "shown that it ended. Whether any came, a request log tells.",
    SpanStatus.BOUNDED: "Canary and rejection passed on this fingerprint; they bound the rate of leaks, they do not "
    "exclude one.",
}


@dataclass(frozen=True, slots=True)
class Window:
    """[since, until), and the texts as the form shows them. ``problem`` is a sentence, "" where it is fine."""

    since: datetime
    until: datetime
    since_text: str
    until_text: str
    problem: str = ""
    clipped: bool = False  # its end lay in the future


@dataclass(frozen=True, slots=True)
class BarPiece:
    """A rectangle of the bar, in units of the viewBox."""

    x: float
    width: float
    css: str
    title: str

    @property
    def fill(self) -> str:
        return FILLS.get(self.css, "")


@dataclass(frozen=True, slots=True)
class Total:
    word: str
    verdict: str
    time: timedelta
    share: str
    meaning: str
    css: str

    @property
    def fill(self) -> str:
        return FILLS.get(self.css, "")


def window_of(query: Mapping[str, str], now: datetime) -> Window:
    """From ``from`` and ``to``; the last 30 days where nothing is given, and with a ``problem`` where it makes no
    sense: a page says so beside them, whatever people keep or send on is not made."""
    texts = {name: untrusted.query_text(query.get(name), 40) for name in ("from", "to")}
    since = parse_moment(texts["from"]) if texts["from"] else None
    until = parse_moment(texts["to"], end=True) if texts["to"] else None
    problem = ""
    for name, found in (("from", since), ("to", until)):
        if (query.get(name) or "").strip() and found is None:  # also what is nothing once it is cleaned
            problem = (
                f"“{untrusted.plain(query[name], 40)}” is no date: write 2026-09-01 or 2026-09-01T14:30."
            )
    end = min(until or now, now)
    start = since or end - DEFAULT
    if not problem and start >= end:
        problem = (
            "The window lies in the future: nothing is known of it."
            if start >= now
            else "The window ends before it begins: exchange the dates."
        )
    if not problem and end - start > LONGEST:
        problem = "The window is longer than ten years: ask for a shorter one."
    if problem:
        start, end = now - DEFAULT, now
    return Window(
        start, end, texts["from"] or _day(start), texts["to"], problem, until is not None and until > now
    )


def _day(when: datetime) -> str:
    return f"{timezone.localtime(when):%Y-%m-%d}"


def sentence(statement: Statement, logs: Sequence[RequestLog] = ()) -> str:
    """The answer to "was anybody exposed?": what the deployment was shown to do and, of a leak, what the newest of
    ``logs`` that speaks of it counts: that a request met it, no check of ours can see. Never no."""
    untested, share = statement.time(SpanStatus.UNTESTED), _share(statement, SpanStatus.UNTESTED)
    gap = f" Nothing is known of {_time(untested)} ({share}) of it." if untested else ""
    if statement.worst is SpanStatus.LEAKING:
        leaking = _time(statement.time(SpanStatus.LEAKING))
        met = f"{_unseen(statement, SpanStatus.LEAKING)} {_met(statement, logs)}"
        if danger := statement.time(SpanStatus.DANGER):
            met += f" For another {_time(danger)} the danger zone was open.{_unseen(statement, SpanStatus.DANGER)}"
        return f"It was shown leaking for {leaking}. {_ended(statement)}{met}{gap}"
    if statement.worst is SpanStatus.DANGER:
        return (
            f"Possibly: the danger zone was open for {_time(statement.time(SpanStatus.DANGER))}; "
            f"no test showed a leak, and a request in it may have met one.{_unseen(statement, SpanStatus.DANGER)}{gap}"
        )
    if statement.worst is SpanStatus.UNTESTED:
        bounded = statement.time(SpanStatus.BOUNDED)
        rest = f" For the other {_time(bounded)} {_bounded(statement)}" if bounded else ""
        return f"Not known: {_time(untested)} ({share}) of this window is not tested.{rest}"
    return f"Not shown at any time: throughout, {_bounded(statement)} That is a bound, not a no."


def ended_by(statement: Statement) -> Span | None:
    """The first valid pass after the last time that it was shown leaking; None where nothing shows an end."""
    last = max((span.end for span in statement.spans if span.standing is SpanStatus.LEAKING), default=None)
    if last is None:
        return None
    after = (s for s in statement.spans if s.start >= last and s.standing is SpanStatus.BOUNDED)
    return min(after, key=lambda span: span.start, default=None)


def _ended(statement: Statement) -> str:
    """When the leak ended and which run shows it, or that nothing does."""
    last = max(span.end for span in statement.spans if span.standing is SpanStatus.LEAKING)
    after = ended_by(statement)
    if after is not None:
        by = f": run {after.run} found no leak within its bound" if after.run else ""
        return f"It had ended by {_minute(after.start)}{by}."
    if last >= statement.until:
        return "Nothing has shown that it ended."
    return f"That went on until {_minute(last)}; no valid pass of canary and rejection covers the time since."


def _met(statement: Statement, logs: Sequence[RequestLog]) -> str:
    """Whether a request came while it leaked, as far as a log of that time says so."""
    leaks = [span for span in statement.spans if span.standing is SpanStatus.LEAKING]
    log = next((log for log in logs if any(s.start < log.until and log.since < s.end for s in leaks)), None)
    if log is None or log.leaking is None:
        return "Whether anybody’s request met it, only a request log can tell: import one."
    least = " or more" if log.problem_count else ""
    return (
        f"The newest request log of that time, {untrusted.plain(log.name, 80)}, held {log.leaking:,}"
        f"{least} {'request' if log.leaking == 1 else 'requests'} of lengths in question while it leaked; whether an "
        "answer held foreign text the log cannot tell."
    )


def _unseen(statement: Statement, standing: SpanStatus) -> str:
    """How much of it goes on only because nobody looked again, or looking decided nothing."""
    last = statement.last_look(standing)
    if last is None:
        return ""
    length = _time(statement.unconfirmed(standing))
    return f" For {length} of that nobody looked again with a result: the last look was at {_minute(last)}."


def why(span: Span) -> str:
    """The reason of a span, and since when nobody has looked again."""
    if span.last_look is None:
        return span.why
    return f"{span.why}; not looked at again with a result since {_minute(span.last_look)}"


def _minute(when: datetime) -> str:
    return f"{timezone.localtime(when):%Y-%m-%d %H:%M %Z}"


def _bounded(statement: Statement) -> str:
    bound = statement.largest_bound
    if bound is None:
        return "valid passes hold, but they do not state a bound for all of it."
    return f"valid passes bound the rate of leaks: fewer than {bound:.1%} of requests like ours (95 % confidence)."


def _time(length: timedelta) -> str:
    return times.duration(length.total_seconds())


def _share(statement: Statement, standing: SpanStatus) -> str:
    share = statement.share(standing)
    if 0 < share < 0.001:
        return "under 0.1\u00a0%"
    if 0.999 < share < 1:
        return "over 99.9\u00a0%"
    return f"{share:.1%}".replace("%", "\u00a0%")


def totals(statement: Statement) -> list[Total]:
    """Gaps first."""
    return [
        Total(
            WORDS[each],
            VERDICTS[each],
            statement.time(each),
            _share(statement, each),
            MEANING[each],
            CSS[each],
        )
        for each in SpanStatus
    ]


def pieces(statement: Statement) -> list[BarPiece]:
    """The bar's rectangles, gaps drawn first, the worst last so that the shortest leak stays visible."""
    whole = (statement.until - statement.since).total_seconds() or 1.0
    order = (SpanStatus.UNTESTED, SpanStatus.BOUNDED, SpanStatus.DANGER, SpanStatus.LEAKING)
    found = []
    for standing in order:
        for span in statement.spans:
            if span.standing is standing:
                x = (span.start - statement.since).total_seconds() / whole * WIDTH
                width = (span.end - span.start).total_seconds() / whole * WIDTH
                least = 3.0 if standing in (SpanStatus.LEAKING, SpanStatus.DANGER) else 0.0
                width = max(width, least)
                x = min(x, WIDTH - width)
                found.append(BarPiece(round(x, 2), round(width, 2), CSS[standing], _title(span)))
    return found


def _title(span: Span) -> str:
    start, end = (f"{timezone.localtime(each):%Y-%m-%d %H:%M}" for each in (span.start, span.end))
    return f"{WORDS[span.standing]}, {start} to {end}: {why(span)}"


def described(statement: Statement) -> str:
    """What the bar shows, for those who do not see it."""
    return ", ".join(f"{total.word} {total.share}" for total in totals(statement))


def rows(statement: Statement) -> Sequence[tuple[Span, str, str, str, str]]:
    """The table twin, in order of time: span, style of its mark, its word, why, what its bound reads."""
    return [
        (
            span,
            VERDICTS[span.standing],
            WORDS[span.standing],
            why(span),
            "" if span.bound is None else f"{span.bound:.2%}".replace("%", "\u00a0%"),
        )
        for span in statement.spans
    ]


EXPORT_HEAD = (
    "from (UTC)",
    "to (UTC)",
    "standing",
    "why",
    "run",
    "danger zone low",
    "danger zone high",
    "bound",
    "fingerprint",
    "last look with a result (UTC)",
)


def export(statement: Statement) -> list[tuple[object, ...]]:
    lines: list[tuple[object, ...]] = [EXPORT_HEAD]
    for span in statement.spans:
        low, high = span.zone or (None, None)
        lines.append(
            (
                span.start.isoformat(),
                span.end.isoformat(),
                span.standing.value,
                span.why,
                span.run,
                low,
                high,
                span.bound,
                span.fingerprint,
                span.last_look.isoformat() if span.last_look else None,
            )
        )
    return lines
