from __future__ import annotations

import pytest

from kvaudit.lab.counters import Histogram
from kvaudit.lab.exposition import Exposition


def test_buckets_are_cumulative_and_end_with_all():
    seen = Histogram()
    for seconds in (0.001, 0.002, 0.3, 99):
        seen.add(seconds)
    out = Exposition({"engine": "0"})
    out.histogram("x_seconds", seen)
    found = dict(line.rsplit(" ", 1) for line in out.text().splitlines() if not line.startswith("#"))
    assert found['x_seconds_bucket{engine="0",le="0.001"}'] == "1.0"
    assert found['x_seconds_bucket{engine="0",le="0.005"}'] == "2.0"
    assert found['x_seconds_bucket{engine="0",le="20.0"}'] == "3.0"
    assert found['x_seconds_bucket{engine="0",le="+Inf"}'] == "4.0"
    assert float(found['x_seconds_sum{engine="0"}']) == pytest.approx(99.303)


def test_counters_end_in_total_and_labels_are_sorted():
    out = Exposition({"b": "2"})
    out.counter("x", 3, "help", a="1")
    assert out.text() == '# HELP x help\n# TYPE x counter\nx_total{a="1",b="2"} 3.0\n'
