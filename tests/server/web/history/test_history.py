"""Audit history: filters, hostile input, who sees what."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.audits.models import Result
from tests.server.web import builders
from tests.server.web.pages import page_text

EVIL = "=cmd|' /C calc'!A0<script>alert(1)</script>\u202e" + "x" * 10_000


@pytest.fixture
def told(pair):
    now = timezone.now()
    builders.a_run(pair, {"pool": "pass", "version": "pass"}, at=now - timedelta(days=40))
    builders.a_run(pair, {"pool": "fail", "version": "pass"}, at=now - timedelta(hours=1))
    return pair


def test_every_result_is_listed_newest_first(people, told):
    page = page_text(people.viewer.get("/history/"))
    assert "4 results" in page
    assert page.index("do not fit the prefill pool") < page.index("holds the context")
    assert "sglang 0.5.22" in page


@pytest.mark.parametrize(
    ("query", "count"),
    [("verdict=fail", 1), ("check=version", 2), ("deployment=chat-large", 4), ("deployment=chat", 4),
     ("trigger=manual", 4), ("engine=sglang&version=0.5.22", 2), ("deployment=nobody", 0), ("trigger=drift", 0),
     ("actor=nobody", 0), ("since=2020-01-01", 4), ("until=2020-01-01", 0), ("version=0.5.19", 0),
     ("check=pool&verdict=pass", 1)],
)  # fmt: skip
def test_filters(people, told, query, count):
    page = page_text(people.viewer.get(f"/history/?{query}"))
    if count:
        assert f"{count} result" in page
    else:
        assert "No result matches these filters in all of history." in page


def test_a_stranger_sees_nothing(people, told):
    assert "has a result yet" in page_text(people.stranger.get("/history/"))
    assert "/d/chat-large/" not in page_text(people.stranger.get("/history/?deployment=chat-large"))


@pytest.mark.parametrize(
    "query",
    ["deployment=%00", "verdict=green", "trigger=%E2%80%AE", "since=soon", "since=9999-12-31", "until=0001-01-01",
     "before=zzz", "before=99999999999999999999", "before=-1", "check=" + "x" * 5_000, "actor=%25", "engine=%27%3B--",
     "version=%F0%9F%98%80", "since=2026-13-45", "until=2026-02-30T25:00", "before=%C2%B2"],
)  # fmt: skip
def test_odd_filters_never_break_the_page(people, told, query):
    assert people.viewer.get(f"/history/?{query}").status_code == 200


def test_what_made_no_sense_is_said(people, told):
    page = page_text(people.viewer.get("/history/?since=soon&verdict=green&trigger=%3Cb%3E&deployment=%00"))
    alert = page.split('<div role="alert">', 1)[1].split("</div>", 1)[0]
    assert "“soon” is no date" in alert
    assert "no such verdict as “green”: it is one of pass, fail, inconclusive, error." in alert
    assert "no such trigger as “&lt;b&gt;”" in alert
    assert "is nothing to filter by (deployment)" in alert
    assert alert.count("It was not filtered by") == 4
    assert "\x00" not in page
    assert 'role="alert"' not in page_text(people.viewer.get("/history/?since=%20&verdict=&deployment=chat"))


def test_hostile_text_is_shown_not_obeyed(people, told):
    Result.objects.filter(verdict="fail").update(summary=EVIL)
    page = page_text(people.viewer.get("/history/"))
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "U+202E" in page


def test_the_number_of_queries_is_fixed(people, told, django_assert_max_num_queries):
    people.viewer.get("/history/")
    with django_assert_max_num_queries(15) as few:
        people.viewer.get("/history/")
    for number in range(60):
        builders.a_run(told, {"pool": "pass"}, at=timezone.now() - timedelta(minutes=number))
    with django_assert_max_num_queries(len(few.captured_queries)):
        people.viewer.get("/history/")
