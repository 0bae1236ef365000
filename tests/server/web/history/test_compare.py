"""Two runs side by side."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.fleet.models import NodeSnapshot
from kvaudit.server.web.history.compare.page import flat
from tests.server.web import builders
from tests.server.web.pages import page_text


@pytest.fixture
def two(pair):
    now = timezone.now()
    node = pair.nodes.order_by("name").last()
    NodeSnapshot.objects.filter(node=node).update(
        first_seen=now - timedelta(days=9), current=False, fingerprint={"version": "0.5.19", "pool": 681_280}
    )
    new = builders.a_snapshot(node, version="0.5.22")
    NodeSnapshot.objects.filter(pk=new.pk).update(
        first_seen=now - timedelta(hours=2), fingerprint={"version": "0.5.22", "pool": 681_280}
    )
    before = builders.a_run(
        pair, {"pool": "fail", "version": "pass"}, at=now - timedelta(days=1), measures=builders.SHORT_POOL,
        fingerprint="a" * 64,
    )  # fmt: skip
    after = builders.a_run(
        pair, {"pool": "pass", "drift": "pass"}, at=now, measures=builders.LARGE_POOL, fingerprint="b" * 64
    )
    return before, after


def test_verdicts_measures_and_fingerprints_side_by_side(people, two):
    before, after = two
    before.results.filter(check_id="version").update(measures={"pins": ["of-version-alone"]})
    page = page_text(people.viewer.get(f"/compare/?a={before.pk}&b={after.pk}"))
    assert "1 of 1 check that both have came to another verdict: <bdi>pool</bdi>." in page
    assert f"Only run {before.pk} has <bdi>version</bdi>" in page
    assert f"Only run {after.pk} has <bdi>drift</bdi>" in page
    assert "of-version-alone" not in page, "what one run never asked is no difference of measures"
    assert "681,280" in page
    assert "2,040,000" in page
    assert "not in this run" in page
    assert "The configuration moved between them." in page
    assert "0.5.19" in page
    assert "Nothing moved" in page  # of the decode node


def test_unknown_fingerprints_are_not_equal(people, pair):
    first, second = (builders.a_run(pair, {"pool": "pass"}) for _ in range(2))
    page = page_text(people.viewer.get(f"/compare/?a={first.pk}&b={second.pk}"))
    assert "is unknown: a run without readings has no fingerprint" in page
    assert "The one check that both have came to the same verdict." in page


def test_runs_without_a_common_check_are_not_said_to_differ(people, pair):
    first, second = builders.a_run(pair, {"pool": "pass"}), builders.a_run(pair, {"version": "fail"})
    page = page_text(people.viewer.get(f"/compare/?a={first.pk}&b={second.pk}"))
    assert "no check in common" in page
    assert "another verdict" not in page


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("a=1", 404),
        ("a=x&b=y", 404),
        ("a=%00", 200),
        ("a=99999999999999999999&b=1", 404),
        ("a=%C2%B2", 404),
    ],
)
def test_odd_numbers_are_answered_in_words(people, pair, query, status):
    assert people.viewer.get(f"/compare/?{query}").status_code == status


def test_a_stranger_cannot_compare(people, two):
    answer = people.stranger.get(f"/compare/?a={two[0].pk}&b={two[1].pk}")
    assert answer.status_code == 404
    assert "chat-large" not in page_text(answer)


def test_the_same_run_twice_is_said(people, two):
    assert "Both are the same run" in page_text(people.viewer.get(f"/compare/?a={two[0].pk}&b={two[0].pk}"))


def test_the_number_of_queries_is_fixed(people, two, django_assert_max_num_queries):
    address = f"/compare/?a={two[0].pk}&b={two[1].pk}"
    people.viewer.get(address)
    with django_assert_max_num_queries(16):
        people.viewer.get(address)


@pytest.mark.parametrize(
    ("measures", "paths"),
    [
        ({"pool_tokens": 5}, [("KV pool, smallest (tokens)", "5")]),
        (
            {"nodes": [{"node": "a", "pool": None}]},
            [("Nodes › a › node", "a"), ("Nodes › a › pool", "unknown")],
        ),
        ({"danger_zone": None}, [("Danger zone (prompt tokens)", "none found")]),
        ({"many": [{"x": 1}] * 13}, [("Many", "13 entries")]),
        ({"zone": [1, 2]}, [("Zone", "[1, 2]")]),
        ({}, []),
    ],
)
def test_nested_measures_are_laid_flat(measures, paths):
    assert flat(measures) == paths
