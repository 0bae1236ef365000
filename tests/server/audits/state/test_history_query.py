"""The history in slices: what is found, how far one request looks, and what a filter costs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state import history_query
from kvaudit.server.audits.state.history_query import Question, page_of
from tests.factories import a_deployment, a_node, a_user
from tests.server.web import builders

pytestmark = pytest.mark.django_db


def ids(found):
    return [row.pk for row in found.rows]


def walk(asked, size=50):
    """Every page, one after the other."""
    seen, below = [], None
    for _ in range(1_000):
        found = page_of(asked, below=below, size=size)
        seen += ids(found)
        below = found.older
        if below is None:
            return seen
    raise AssertionError("the walk does not end")


@pytest.fixture
def filled(db):
    """Two deployments, five days, a result an hour, one fail and one run by hand."""
    first, second = a_deployment("alpha"), a_deployment("beta")
    now = timezone.now()
    for hour in range(60):
        for deployment in (first, second):
            builders.a_run(
                deployment, {"pool": "pass", "version": "pass"}, at=now - timedelta(hours=60 - hour)
            )
    builders.a_run(first, {"pool": "fail"}, at=now, actor=a_user("ada"), trigger="drift")
    return first, second


def test_pages_follow_each_other_without_gap_or_repetition(filled):
    everything = list(Result.objects.order_by("-id").values_list("id", flat=True))
    assert walk(Question(), size=7) == everything


@pytest.mark.parametrize("step", [1, 3, 50, 1_000])
def test_slices_of_any_size_find_the_same(filled, monkeypatch, step):
    monkeypatch.setattr(history_query, "FIRST_STEP", step)
    monkeypatch.setattr(history_query, "SLICE", 2 * step)
    for asked in (
        Question(verdict="fail"),
        Question(deployments=(filled[0].pk,)),
        Question(check="version", deployments=(filled[1].pk,)),
        Question(deployments=(filled[0].pk, filled[1].pk), trigger="drift"),
        Question(deployments=(filled[0].pk,), verdict="fail"),
        Question(deployments=(filled[0].pk,), verdict="pass", check="pool"),
    ):
        wanted = Result.objects.order_by("-id")
        if asked.verdict:
            wanted = wanted.filter(verdict=asked.verdict)
        if asked.deployments:
            wanted = wanted.filter(deployment__in=asked.deployments)
        if asked.check:
            wanted = wanted.filter(check_id=asked.check)
        if asked.trigger:
            wanted = wanted.filter(run__trigger=asked.trigger)
        assert walk(asked) == list(wanted.values_list("id", flat=True))


def test_a_slice_that_ends_early_says_how_far_it_searched(filled, monkeypatch):
    monkeypatch.setattr(history_query, "FIRST_STEP", 20)
    monkeypatch.setattr(history_query, "SLICE", 20)
    found = page_of(Question(check="canary"))
    assert found.rows == []
    assert found.older is not None
    assert found.searched_to == Result.objects.get(pk=found.older).observed_at
    assert found.looked_at == 20


@pytest.mark.parametrize("check", ["", "version"])
def test_of_one_deployment_as_many_rows_of_its_own_are_looked_at(filled, monkeypatch, check):
    monkeypatch.setattr(history_query, "FIRST_STEP", 20)
    monkeypatch.setattr(history_query, "SLICE", 20)
    (first, _), verdict = filled, "fail" if check else "pass"
    rows = Result.objects.filter(deployment=first, **({"check_id": check} if check else {})).order_by("-id")
    found = page_of(Question(deployments=(first.pk,), check=check, verdict=verdict, trigger="manual"))
    assert (found.looked_at, found.older) == (20, rows[19].pk)


def test_what_did_not_pass_is_found_at_once_however_much_passed(filled, monkeypatch):
    monkeypatch.setattr(history_query, "FIRST_STEP", 20)
    monkeypatch.setattr(history_query, "SLICE", 20)
    builders.a_run(filled[0], {"version": "pass"}, at=timezone.now())
    found = page_of(Question(deployments=(filled[0].pk,), verdict="fail"))
    assert ([row.verdict for row in found.rows], found.older) == (["fail"], None)


def test_impatience_ends_a_slice(filled, monkeypatch):
    monkeypatch.setattr(history_query, "FIRST_STEP", 20)
    monkeypatch.setattr(history_query, "PATIENCE", 0.0)
    assert page_of(Question(check="canary")).looked_at == 20


def test_the_end_of_history_is_an_end(filled):
    found = page_of(Question(check="canary"))
    assert (found.older, found.searched_to) == (None, None)
    assert page_of(Question(deployments=())).older is None


def test_times_narrow_before_anything_is_scanned(filled):
    now = timezone.now()
    since, until = now - timedelta(hours=20), now - timedelta(hours=10)
    asked = Question(since=since, until=until)
    wanted = Result.objects.filter(observed_at__gte=since, observed_at__lt=until).order_by("-id")
    assert walk(asked) == list(wanted.values_list("id", flat=True))
    lowest, top = history_query.bounds(asked)
    everything = history_query.bounds(Question())
    assert everything[0] < lowest < top < everything[1]


@pytest.mark.parametrize("hours", [-1, 0, 30, 59, 1_000])
def test_times_outside_of_history(filled, hours):
    moment = timezone.now() - timedelta(hours=hours)
    for asked in (Question(since=moment), Question(until=moment)):
        wanted = Result.objects.order_by("-id")
        wanted = (
            wanted.filter(observed_at__gte=moment) if asked.since else wanted.filter(observed_at__lt=moment)
        )
        assert walk(asked) == list(wanted.values_list("id", flat=True))


def test_actor_and_trigger_come_from_the_run(filled):
    fail = Result.objects.get(verdict="fail")
    ada = fail.run.actor
    assert walk(Question(actors=(ada.pk,))) == [fail.pk]
    assert walk(Question(trigger="drift")) == [fail.pk]
    assert walk(Question(trigger="retry")) == []


def test_engine_and_version_are_those_of_the_moment(filled):
    first, _ = filled
    now = timezone.now()
    node = a_node(first, "prefill-0")
    old = builders.a_snapshot(node, version="0.5.19")
    type(old).objects.filter(pk=old.pk).update(first_seen=now - timedelta(days=30), current=False)
    new = builders.a_snapshot(node, version="0.5.22")
    type(new).objects.filter(pk=new.pk).update(first_seen=now - timedelta(hours=30))
    type(node).objects.filter(pk=node.pk).update(valid_from=now - timedelta(days=40))

    of_first = Result.objects.filter(deployment=first).order_by("-id")
    before = of_first.filter(observed_at__lt=now - timedelta(hours=30))
    after = of_first.filter(observed_at__gte=now - timedelta(hours=30))
    assert walk(Question(version="0.5.19")) == list(before.values_list("id", flat=True))
    assert walk(Question(engine="sglang", version="0.5.2")) == list(after.values_list("id", flat=True))
    assert walk(Question(engine="vllm")) == []
    found = page_of(Question(deployments=(first.pk,)))
    assert found.builds.at(first.pk, now) == "sglang 0.5.22"
    assert found.builds.at(first.pk, now - timedelta(days=3)) == "sglang 0.5.19"
    assert found.builds.at(first.pk, now - timedelta(days=300)) == ""


def test_a_page_costs_the_same_however_long_history_is(filled, django_assert_max_num_queries):
    with django_assert_max_num_queries(6):
        page_of(Question())
    with django_assert_max_num_queries(7):
        page_of(Question(check="canary", since=timezone.now() - timedelta(days=9)))
