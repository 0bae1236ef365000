"""Time to first token: which points are judged how, the curve, and measures that any release may have written."""

from __future__ import annotations

import pytest

from kvaudit.auditor.stats import ttft
from kvaudit.server.web.deployment.figures import prefill, production
from tests.factories import a_deployment, a_team
from tests.server.inquiries.request_logs.test_importer import brought
from tests.server.inquiries.request_logs.test_production import HONEST, ODD
from tests.server.web import builders
from tests.server.web.deployment import figure_history


def kinds(measures):
    return {point["name"]: point["kind"] for point in prefill.points(measures)}


def test_points_are_told_apart():
    assert kinds(figure_history.PREFILL) == {
        "fit": "fitted", "longest": "judged", "N": "flagged", "midpoint": "untestable",
    }  # fmt: skip


def test_the_line_is_where_the_judge_begins_to_flag():
    fit = ttft.Fit(0.05, 2e-5, 3e-11, 0.05, 613_000, ())
    data, _ = prefill.build(figure_history.PREFILL, "/runs/7/#check-prefill")
    line = next(item for item in data if item["name"] == "too fast below")
    assert line["x"]
    for tokens, seconds in zip(line["x"], line["y"], strict=True):
        assert ttft.judge(fit, tokens, seconds * 0.999).too_fast
        assert not ttft.judge(fit, tokens, seconds * 1.001).too_fast


def test_points_lead_to_their_run_and_the_table_says_the_same(db):
    deployment = a_deployment("chat", team=a_team())
    assert prefill.figure_of(deployment).empty
    run = builders.a_run(deployment, {"prefill": "fail"})
    run.results.update(measures=figure_history.PREFILL)
    data, _ = prefill.draw(deployment)
    flagged = next(item for item in data if item["name"] == "flagged: too fast")
    assert flagged["customdata"] == [f"/runs/{run.pk}/#check-prefill"]
    figure = prefill.figure_of(deployment)
    assert not figure.empty
    assert len(figure.twin.rows) == 43 + 2  # and the curves
    assert [row[4] for row in figure.twin.rows].count("too fast") == 1
    assert "No p5 is drawn: a p5 needs 59 requests" in figure.sentence


def test_a_run_without_points_does_not_hide_the_one_before(db):
    deployment = a_deployment("chat", team=a_team())
    builders.a_run(deployment, {"prefill": "pass"}).results.update(measures=figure_history.PREFILL)
    builders.a_run(deployment, {"prefill": "error"})
    assert prefill.latest(deployment).verdict == "pass"


@pytest.mark.parametrize(
    ("p5", "drawn"),
    [
        (None, None),
        (0.8, [0.8, 0.8, None]),
        (
            [{"from": 100, "to": 500, "seconds": 0.3}, {"from": 500, "to": 100, "seconds": 1}, {"from": 1}],
            [0.3, 0.3, None],
        ),
        ("<b>", None),
    ],
)
def test_the_checks_own_p5_is_drawn_where_it_is_known(p5, drawn):
    levels = production.levels({**figure_history.PREFILL, "p5": p5}, None, None, 700_000)
    found = [trace["y"] for trace in production.traces(levels)]
    assert found == ([] if drawn is None else [drawn])


@pytest.fixture
def deployment(db):
    return a_deployment("chat", team=a_team())


def test_production_alone_is_drawn_and_said_where_the_check_never_ran(deployment):
    assert prefill.figure_of(deployment).empty
    log = brought(*ODD, deployment=deployment)
    figure = prefill.figure_of(deployment)
    assert not figure.empty
    assert figure.sentence.startswith("The check prefill has measured nothing here yet: drawn is what")
    data, _ = prefill.draw(deployment)
    address = f"/d/chat/exposure/logs/{log.pk}/#prefill"
    assert {trace["name"]: (trace["x"], trace["customdata"][0]) for trace in data} == {
        "p5 of production requests": ([4_096, 8_192, None, 16_384, 32_768, None], address),
        "p5 of production: too fast": ([32_768, 65_536, None], address),
    }
    assert [(row[0], row[2]) for row in figure.twin.rows] == [
        ("4,096 to 8,191", "0.5"), ("16,384 to 32,767", "2"), ("32,768 to 65,535", "0.21"),
    ]  # fmt: skip
    assert "too fast, 16,384 to 32,767 tokens took 2 s" in figure.twin.rows[2][4]
    assert f'<a href="{address}">The request log</a>' in figure.warning
    assert (
        "prefilled in 0.21 s (p5 of 60 requests), while those of 16,384 to 32,767 took 2 s." in figure.warning
    )


def test_production_stands_beside_the_probes_and_honest_times_are_no_warning(deployment):
    run = builders.a_run(deployment, {"prefill": "pass"})
    run.results.update(measures=figure_history.PREFILL)
    before = {trace["name"] for trace in prefill.draw(deployment)[0]}
    brought(*HONEST, deployment=deployment)
    assert {trace["name"] for trace in prefill.draw(deployment)[0]} - before == {"p5 of production requests"}
    figure = prefill.figure_of(deployment)
    assert "No p5 is drawn" not in figure.sentence
    assert not figure.warning
    assert len(figure.twin.rows) == 3 + 2 + 43


@pytest.mark.parametrize(
    "measures",
    [
        {},
        {"points": None},
        {"points": "many"},
        {"points": [None, 3, {}, {"tokens": "x", "seconds": 1}, {"tokens": 5, "seconds": None}]},
        {"points": [{"tokens": 5, "seconds": float("inf")}], "fit": {"a": 1}},
        {"points": [{"tokens": 5, "seconds": -1}], "fit": 7, "judged": {"a": 1}},
    ],
)
def test_odd_measures_draw_nothing(measures):
    data, _ = prefill.build(measures, "")
    assert data == []


def test_points_without_a_fit_are_drawn_without_a_curve():
    data, _ = prefill.build({"points": [{"tokens": 5, "seconds": 0.1, "name": "fit"}]}, "")
    assert [item["name"] for item in data] == ["prompts of the fit"]
