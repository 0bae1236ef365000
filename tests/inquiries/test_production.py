"""The p5 of production requests reaches the prefill figure."""

from __future__ import annotations

import pytest

from kvaudit.inquiries.production import production_p5
from kvaudit.web.figures.prefill import draw, figure_of
from tests.factories import a_deployment
from tests.inquiries.test_importing import brought, line
from tests.web import scene

pytestmark = pytest.mark.django_db


def seconds(prefill, count):
    return [line(2, 700_000, prefill=prefill) for _ in range(count)]


def test_the_newest_log_with_enough_requests_counts():
    deployment = a_deployment()
    assert production_p5(deployment) == []
    brought(*seconds("4.0", 59), deployment=deployment)
    brought(*seconds("9.0", 58), deployment=deployment)  # too few to say anything
    brought(*seconds("1.0", 59))  # another deployment's
    (found,) = production_p5(deployment)
    assert (found["from"], found["to"]) == (524_288, 1_048_576)
    assert found["seconds"] == pytest.approx(4.0, rel=0.011)


def test_it_is_drawn_beside_the_probes():
    deployment = a_deployment()
    run = scene.a_run(deployment, {"prefill": "pass"})
    run.results.update(
        measures={
            "points": [{"tokens": 5_000, "uncached": 5_000, "seconds": 1.0, "kind": "fitted"}],
            "p5_note": "needs 59",
        }
    )
    before = {trace["name"] for trace in draw(deployment)[0]}
    brought(*seconds("4.0", 59), deployment=deployment)
    after = {trace["name"] for trace in draw(deployment)[0]}
    assert after - before == {"p5 of production requests"}
    assert "No p5 is drawn" not in figure_of(deployment).sentence
