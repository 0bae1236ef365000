"""The figures' JSON and the table of all changes: who sees them, what they hold, and how many queries they take."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from kvaudit.server.audits.models import StateChange
from kvaudit.server.web.deployment.figures.views import FIGURES, ROWS
from tests.server.inquiries.request_logs.test_importer import brought, line
from tests.server.inquiries.request_logs.test_production import ODD
from tests.server.web import builders
from tests.server.web.deployment import figure_history
from tests.server.web.deployment import figure_measures as measured
from tests.server.web.pages import page_text

EVIL = "<a href='javascript:alert(1)'>x</a>\u202e\x01" + "w" * 10_000


@pytest.mark.parametrize("name", FIGURES)
def test_only_who_sees_the_deployment_sees_its_figures(people, pair, name):
    address = reverse("figure", args=[pair.slug, name])
    assert people.viewer.get(address).status_code == 200
    assert people.stranger.get(address).status_code == 404


def test_a_figure_that_does_not_exist_is_not_found(people, pair):
    assert people.viewer.get(f"/d/{pair.slug}/figures/nothing/").status_code == 404


@pytest.mark.parametrize("name", FIGURES)
def test_foreign_words_reach_the_drawing_as_words(people, pair, name):
    node = pair.nodes.first()
    type(node).objects.filter(pk=node.pk).update(name=EVIL[:300])
    builders.a_change(node)
    StateChange.objects.create(
        at=timezone.now(), deployment=pair, what="verdict", check_id=EVIL[:40], after="fail", summary=EVIL
    )
    builders.a_run(pair, {"prefill": "pass"}).results.update(
        measures={
            **figure_history.PREFILL,
            "points": [{"tokens": 5, "seconds": 1, "name": EVIL}],
            "p5_note": EVIL,
        }
    )
    answer = people.viewer.get(reverse("figure", args=[pair.slug, name]))
    text = json.dumps(json.loads(answer.content), ensure_ascii=False)
    assert "<a " not in text
    assert "\u202e" not in text
    assert "w" * 400 not in text


def test_the_page_survives_foreign_words_in_its_tables(people, pair):
    StateChange.objects.create(
        at=timezone.now(), deployment=pair, what="verdict", check_id=EVIL[:40], after="fail", summary=EVIL
    )
    for name in ("deployment", "deployment-history", "deployment-events"):
        address = reverse(name, args=[pair.slug])
        text = page_text(people.viewer.get(address))
        assert "<a href='javascript" not in text
        assert "\u202e" not in text


def test_every_change_is_found_once_by_walking_the_pages(people, pair):
    now = timezone.now()
    StateChange.objects.bulk_create(
        StateChange(
            at=now - timedelta(minutes=number // 3), deployment=pair, what="verdict", check_id="pool", after="pass",
            summary=f"change {number}.",
        )
        for number in range(2 * ROWS + 50)
    )  # fmt: skip
    address, seen = reverse("deployment-events", args=[pair.slug]), []
    while address:
        context = people.viewer.get(address).context
        seen += [row[3] for row in context["rows"]]
        older = context["older"]
        address = (
            f"{reverse('deployment-events', args=[pair.slug])}?before={older.replace('+', '%2B')}"
            if older
            else ""
        )
    assert len(seen) == len(set(seen)) == 2 * ROWS + 50


@pytest.mark.parametrize(
    "before",
    [
        "", "soon", "2026-01-01", "\x00", "9" * 400, "2026-01-01T00:00:00+99:00", "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-14:00",
    ],
)  # fmt: skip
def test_an_odd_moment_shows_the_newest(people, pair, before):
    answer = people.viewer.get(reverse("deployment-events", args=[pair.slug]), {"before": before})
    assert answer.status_code == 200
    assert answer.context["before"] is None


@pytest.mark.parametrize(("name", "queries"), [("timeline", 9), ("capacity", 5), ("prefill", 3)])
def test_a_figure_takes_a_fixed_number_of_queries(people, pair, django_assert_max_num_queries, name, queries):
    past = figure_history.a_past("chat-past", team=people.team, changes=100)
    with django_assert_max_num_queries(queries + 4):  # session, user and their roles
        people.viewer.get(reverse("figure", args=[past.slug, name]))


@pytest.mark.parametrize(
    "name", ["deployment", "deployment-capacity", "deployment-checks", "deployment-history"]
)
def test_the_deployment_page_takes_as_many_queries_for_a_long_past_as_for_a_short_one(people, name):
    counts = []
    for slug, changes in (("chat-short", 20), ("chat-long", 400)):
        past = figure_history.a_past(slug, team=people.team, changes=changes)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert people.viewer.get(reverse(name, args=[past.slug])).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1]


def shown(people, pair):
    return page_text(people.viewer.get(reverse("deployment-capacity", args=[pair.slug]))).replace(
        "&nbsp;", " "
    )


def test_the_capacity_view_weighs_both_ways(people, pair):
    builders.a_state(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    text = shown(people, pair)
    assert (
        "1,310,720 tokens on every rank: 629,440 more than the smallest of 2 ranks has now (+92 % KV memory"
        in text
    )
    assert "1 rank lacks 629,440 in all" in text
    assert "20 % of the required pool" in text
    assert "1 on the tightest node, once every rank has that size" in text
    assert (
        "Prompts of 545,025 to 1,048,576 tokens end in a 400 that says why: 48 % of the promised lengths"
        in text
    )
    assert (
        f'That is no share of requests: an imported <a href="/d/{pair.slug}/exposure/">request log</a>'
        in text
    )


def test_one_rank_is_the_pool(people, pair):
    measures = {**builders.SHORT_POOL, "nodes": builders.SHORT_POOL["nodes"][:1]}
    builders.a_state(pair, {"pool": "fail"}, measures=measures)
    text = shown(people, pair)
    assert "629,440 more than now (+92 % KV memory)" in text
    assert "1, once the pool has that size" in text


def test_a_log_says_how_many_requests_the_edge_would_refuse(people, pair):
    builders.a_state(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    log = brought(*[line(2, tokens) for tokens in (5, 530_000, 900_000, 2_000_000)], deployment=pair)
    text = shown(people, pair)
    assert "and 1 to 2 of 4 requests of" in text
    assert f'<a href="/d/{pair.slug}/exposure/logs/{log.pk}/">the log imported</a>' in text
    assert "That is no share of requests" not in text


def test_without_a_pool_the_capacity_view_says_unknown(people, pair):
    text = page_text(people.viewer.get(reverse("deployment-capacity", args=[pair.slug])))
    assert "Pool or context is unknown" in text


def test_a_run_shows_strip_and_matrix_with_their_tables(people, pair):
    run = builders.a_run(pair, {"rejection": "fail", "canary": "fail"})
    run.results.filter(check_id="rejection").update(measures=measured.REJECTION)
    run.results.filter(check_id="canary").update(measures=measured.canary())
    text = page_text(people.viewer.get(reverse("run", args=[run.pk])))
    assert 'aria-label="N is 681,274 tokens' in text
    assert "6 lengths in 40 rounds; markers of other requests surfaced 2 times" in text
    assert "7, 8, 19, 20, 13,007, 13,019" in text


def test_a_run_whose_measures_are_odd_still_shows(people, pair):
    run = builders.a_run(pair, {"rejection": "fail", "canary": "fail"})
    odd = {
        "rungs": [{"name": EVIL.replace("\x01", ""), "tokens": 5}],
        "matrix": [{"cell": EVIL.replace("\x01", ""), "rounds": ["?"]}],
    }
    run.results.update(measures=odd)
    answer = people.viewer.get(reverse("run", args=[run.pk]))
    assert answer.status_code == 200
    assert "<a href='javascript" not in page_text(answer)


def test_production_that_is_too_fast_is_said_on_the_page_and_in_the_logs_headline(people, pair):
    log = brought(*ODD, deployment=pair)
    sentence = (
        "Prompts of 32,768 to 65,535 tokens were prefilled in 0.21 s (p5 of 60 requests), while those of 16,384 to "
        "32,767 took 2 s."
    )
    text = page_text(people.viewer.get(reverse("deployment-capacity", args=[pair.slug])))
    assert sentence in text
    assert "has measured nothing here yet, and no" not in text
    assert f'href="/d/{pair.slug}/exposure/logs/{log.pk}/#prefill"' in text
    headline, _ = page_text(people.viewer.get(reverse("request-log", args=[pair.slug, log.pk]))).split(
        'id="tenants"'
    )
    assert sentence in headline
