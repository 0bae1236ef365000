"""A verdict is word, shape and colour together, and whatever is no verdict reads as error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.state.tiers import Tier
from kvaudit.server.web.kit import badges

SHAPES = Path(__file__).resolve().parents[4] / "templates/kit/shapes.html"


@pytest.mark.parametrize("verdict", [*Verdict, *(v.value for v in Verdict)])
def test_every_verdict_has_its_word_and_its_shape(verdict):
    shown = badges.mark(verdict)
    assert f"</svg>{Verdict(verdict).value}</span>" in shown
    assert f"#shape-{Verdict(verdict).value}" in shown
    assert f"verdict-{Verdict(verdict).value}" in shown


def test_the_shapes_that_are_referred_to_are_drawn_and_differ():
    drawn = dict(re.findall(r'<symbol id="shape-(\w+)"[^>]*>(.*?)</symbol>', SHAPES.read_text(), re.DOTALL))
    assert set(drawn) == {*(verdict.value for verdict in Verdict), badges.NOT_RUN, "unsafe"}
    assert len(set(drawn.values())) == len(drawn), "two verdicts may not share a shape"


def test_tiers_differ_in_word_and_shape_and_not_in_colour_alone():
    shown = {tier: badges.of_tier(tier) for tier in Tier}
    assert len({re.search(r"#shape-(\w+)", each)[1] for each in shown.values()}) == len(Tier)
    assert all(each.endswith(f"</svg>{tier.label}</span>") for tier, each in shown.items())


@pytest.mark.parametrize("nonsense", ["green", "PASS", 7, "pass "])
def test_nonsense_is_an_error_never_a_pass(nonsense):
    assert badges.kind(nonsense) == "error"


@pytest.mark.parametrize("nothing", [None, "", "none"])
def test_no_verdict_looks_like_none(nothing):
    assert badges.kind(nothing) == "none"
    assert ">not run</span>" in badges.mark(nothing)


def test_words_are_escaped():
    assert "<b>" not in badges.mark("pass", "<b>")
