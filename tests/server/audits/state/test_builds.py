"""Which builds ran when: spans of nodes, merged per deployment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kvaudit.server.audits.state.builds import FOREVER, Builds, Span

ZERO = datetime(2026, 9, 1, tzinfo=UTC)


def day(number):
    return ZERO + timedelta(days=number)


SPANS = (
    Span(1, day(0), day(3), "sglang", "0.5.19"),
    Span(1, day(3), FOREVER, "sglang", "0.5.22"),
    Span(1, day(2), day(5), "sglang", "0.5.19"),
    Span(1, day(9), day(10), "sglang", "0.5.19"),
    Span(2, day(0), FOREVER, "vllm", "0.32.0"),
)


@pytest.mark.parametrize(
    ("moment", "said"),
    [(-1, ""), (0, "sglang 0.5.19"), (3, "sglang 0.5.19, sglang 0.5.22"), (5, "sglang 0.5.22"),
     (9, "sglang 0.5.19, sglang 0.5.22"), (10, "sglang 0.5.22")],
)  # fmt: skip
def test_what_ran_at_a_moment(moment, said):
    assert Builds(SPANS).at(1, day(moment)) == said


def test_a_deployment_that_was_never_read_ran_nothing_known():
    assert Builds(SPANS).at(7, day(1)) == ""


@pytest.mark.parametrize(
    ("engine", "version", "wanted"),
    [
        ("sglang", "0.5.19", [(1, day(0), day(5)), (1, day(9), day(10))]),
        ("sglang", "", [(1, day(0), FOREVER)]),
        ("", "0.", [(1, day(0), FOREVER), (2, day(0), FOREVER)]),
        ("vllm", "0.5", []),
        ("sglan", "", []),
    ],
)
def test_where_a_build_ran(engine, version, wanted):
    assert Builds(SPANS).running(engine, version) == wanted
