"""What a request was: in an open zone, while a leak was shown, or while nothing was known. Never silently nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kvaudit.server.inquiries.exposure.timespans import Span, SpanStatus, Statement
from kvaudit.server.inquiries.request_logs.classification import (
    ANY_LENGTH,
    Judge,
    Judged,
    Zone,
    joined,
    zones_of,
)
from kvaudit.server.inquiries.request_logs.reader import Request

ZERO = datetime(2026, 9, 1, tzinfo=UTC)
KNOWN = (5_322, 7_000)


def at(hour):
    return ZERO + timedelta(hours=hour)


def span(start, end, standing, zone=None, why=""):
    return Span(at(start), at(end), standing, why, zone=zone)


def judged(known=(KNOWN,)):
    """Untested 0-3 (for two reasons), danger 3-5, leaking 5-6 with the zone open, bounded 6-8, leaking 8-9, an open
    zone of unknown lengths 9-10."""
    danger = span(3, 6, SpanStatus.DANGER, KNOWN)
    spans = [
        span(0, 1, SpanStatus.UNTESTED, why="canary had never run"),
        span(1, 3, SpanStatus.UNTESTED, why="rejection had never run"),
        span(3, 5, SpanStatus.DANGER, KNOWN),
        span(5, 6, SpanStatus.LEAKING),
        span(6, 8, SpanStatus.BOUNDED),
        span(8, 9, SpanStatus.LEAKING),
        span(9, 10, SpanStatus.DANGER),
    ]
    return zones_of(Statement(at(0), at(10), spans, [danger]), known)


def request(hour, tokens):
    return Request(1, at(hour), tokens, "acme", "", None)


@pytest.mark.parametrize(
    ("hour", "tokens", "standing", "inside"),
    [
        (0, 5_322, Judged.UNKNOWN, False),
        (2, 6_999, Judged.UNKNOWN, False),
        (2, 5_321, None, False),
        (2, 7_000, None, False),  # longer
        (3, 6_000, Judged.DANGER, True),
        (5, 6_000, Judged.LEAKING, True),
        (7, 6_000, None, False),
        (8, 6_000, Judged.LEAKING, False),
        (9, 6_000, Judged.UNKNOWN, False),
        (10, 6_000, None, False),
    ],
)
def test_the_worst_that_applies(hour, tokens, standing, inside):
    judge, asked = Judge(judged()), request(hour, tokens)
    assert judge.of(asked) is standing
    assert judge.inside(asked) is inside


def test_longer_than_every_known_length_while_nothing_was_known():
    judge = Judge(judged())
    assert judge.longer(request(2, 7_000))
    assert not judge.longer(request(2, 6_999))
    assert not judge.longer(request(7, 7_000))


def test_where_no_length_was_ever_known_every_length_is_not_known():
    judge = Judge(judged(known=()))
    assert judge.of(request(2, 0)) is Judged.UNKNOWN
    assert judge.of(request(9, 10**12)) is Judged.UNKNOWN
    assert judge.of(request(8, 3)) is Judged.LEAKING
    assert judge.of(request(7, 3)) is None
    assert not judge.longer(request(2, 10**12))


def test_times_that_follow_each_other_are_one_and_lengths_are_joined():
    unknown = [(z.since, z.until) for z in judged() if z.standing is Judged.UNKNOWN]
    assert unknown == [(at(0), at(3)), (at(9), at(10))]
    assert joined([(5, 7), (1, 3), (2, 4), (4, 5), (9, 10)]) == [(1, 7), (9, 10)]


def test_a_zone_that_an_earlier_release_kept_is_a_danger_zone():
    zone = Zone(at(0), at(1), *ANY_LENGTH, Judged.UNKNOWN)
    assert Zone.from_json(zone.as_json()) == zone
    old = {key: value for key, value in zone.as_json().items() if key != "standing"}
    assert Zone.from_json(old).standing is Judged.DANGER
