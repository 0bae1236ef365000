"""What every figure shares: times in the viewer's zone, and texts that plotly cannot take for markup."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from kvaudit.server.web.kit import figure as frame

NOON = datetime(2026, 7, 1, 12, 0, 30, tzinfo=UTC)


def test_a_date_axis_shows_the_viewers_clock():
    utc = round(NOON.timestamp() * 1000)
    assert frame.local(NOON) == utc
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        assert frame.local(NOON) == utc + 9 * 3_600_000
        assert frame.instant(NOON) == "2026-07-01 21:00:30 JST (2026-07-01 12:00 UTC)"
    assert frame.instant(NOON) == "2026-07-01 12:00:30 UTC"


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("<a href='javascript:x'>hi</a>", "&lt;a href='javascript:x'&gt;hi&lt;/a&gt;"),
        ("a<br>b & c", "a&lt;br&gt;b &amp; c"),
        ("\u202eevil\x00", "[U+202E]evil[U+0000]"),
        ("w" * 200, "w" * 160 + "… (200 characters)"),
        (None, ""),
        (0, "0"),
    ],
)
def test_foreign_words_are_no_markup_of_plotly(foreign, shown):
    assert frame.hover_text(foreign) == shown


def test_lines_are_broken_by_us_alone():
    assert frame.hover_text("one\ntwo", "", "three") == "one\ntwo<br>three"


def test_the_answer_is_json_of_plain_lists():
    answer = frame.answer([{"x": [1]}], frame.layout(height=100, x={"title": "t"}, y={}))
    body = json.loads(answer.content)
    assert answer["Content-Type"] == "application/json"
    assert body["data"] == [{"x": [1]}]
    assert body["layout"]["xaxis"]["title"]["text"] == "t"
    assert body["layout"]["yaxis"]["fixedrange"] is True
