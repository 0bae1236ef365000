"""Times: in the viewer's zone, UTC in the title, ages in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from kvaudit.server.web.kit import times

NOON = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_599, "59 min"), (3_600, "1 h"), (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"), (86_400, "1 d"), (86_460, "1 d"), (90_000, "1 d 1 h"), (3 * 86_400 + 7_200, "3 d"),
        (-120, "2 min"),
    ],
)  # fmt: skip
def test_lengths_in_words(seconds, words):
    assert times.duration(seconds) == words


def test_past_future_and_now():
    assert times.ago(NOON - timedelta(minutes=3), NOON) == "3 min ago"
    assert times.ago(NOON + timedelta(hours=2), NOON) == "in 2 h"
    assert times.ago(NOON, NOON) == "now"


def test_the_zone_decides_what_is_seen_and_utc_is_in_the_title():
    with timezone.override(ZoneInfo("Europe/Berlin")):
        shown = times.stamp(NOON)
    assert "2026-07-01 14:00:00 CEST" in shown
    assert 'title="2026-07-01 12:00:00 UTC"' in shown
    assert 'datetime="2026-07-01T12:00:00Z"' in shown


def test_a_zone_without_letters_shows_its_offset():
    with timezone.override(ZoneInfo("America/Sao_Paulo")):
        assert "09:00:00 -0300" in times.stamp(NOON)


def test_no_moment_is_said():
    assert "never" in times.stamp(None)
    assert "not planned" in times.age(None, absent="not planned")


@pytest.mark.parametrize(
    ("length", "words"),
    [(timedelta(seconds=5), "5s"), (timedelta(days=12, hours=3), "12d"), (timedelta(0), "0s")],
)
def test_brief_lengths(length, words):
    assert times.brief(length) == words


def test_a_due_time_that_has_passed_is_said_as_such():
    text = [
        re.sub(r"<[^>]*>", "", times.due(each, NOON, "next "))
        for each in (None, NOON, NOON - timedelta(hours=2))
    ]
    assert text == ["not planned", "next now", "due 2 h ago"]
