"""The lenient reader of Prometheus text."""

from __future__ import annotations

import pytest

from kvaudit.auditor.engines._prometheus import LINES, MOST_SAMPLES, parse
from kvaudit.auditor.engines.answers import Answer
from tests.waiting import bounded


def metrics(text: str | bytes, status: int = 200):  # type: ignore[no-untyped-def]
    body = text if isinstance(text, bytes) else text.encode()
    return parse(Answer("/metrics", status, body))


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("a 1", {}, 1.0),
        ("a{} 1", {}, 1.0),
        ("a\t-2.5e3", {}, -2500.0),
        ('a{x="1",y="two"} 3.0', {"x": "1", "y": "two"}, 3.0),
        ('a{x="1",} 3.0', {"x": "1"}, 3.0),
        ('a { x = "1" , y="2" } 3.0 1700000000', {"x": "1", "y": "2"}, 3.0),
        ('a{x="}",y="a\\"b\\\\c\\nd"} 3', {"x": "}", "y": 'a"b\\c\nd'}, 3.0),
        ('a{x="1"} 7 # {trace="9"} 0.5', {"x": "1"}, 7.0),
        ("a NaN", {}, None),
        ("a +Inf", {}, None),
        ("a 1e999", {}, None),
    ],
)
def test_reads_a_line(line: str, labels: dict[str, str], value: float | None) -> None:
    (sample,) = metrics(line + "\n").samples("a")
    assert dict(sample.labels) == labels
    assert sample.value == value


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a{",
        'a{x="1"',
        "a{x=1} 2",
        'a{x="1" 2',
        "a{} ",
        "a 1_000",
        "a ٣",
        "a one",
        "# a 1",
        "1a 1",
        "a{}} 1",
    ],
)
def test_skips_what_it_cannot_read(line: str) -> None:
    found = metrics(line + "\nb 1\n")
    assert found.samples("a") == ()
    assert found.total("b") == 1.0


def test_names_and_prefixes() -> None:
    found = metrics('vllm:nixl_x_total{engine="0"} 1\nvllm:nixl_x_total{engine="1"} 2\n')
    assert "vllm:nixl_x_total" in found
    assert "vllm:nixl" not in found
    assert found.any_with("vllm:nixl_")
    assert not found.any_with("sglang:")
    assert found.total("vllm:nixl_x_total") == 3.0
    assert found.total("absent") is None
    assert found


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"<html>a 1", b'{"a": 1}', b"[]", b"\n\n"])
def test_what_is_no_exposition_is_empty(body: bytes) -> None:
    assert not metrics(body)


def test_other_statuses_are_empty() -> None:
    assert not metrics("a 1\n", status=500)
    assert not parse(None)


def test_bytes_that_are_no_utf8_cost_only_their_line() -> None:
    assert metrics(b'a{x="\xff"} 1\nb 2\n').total("b") == 2.0


def test_hostile_bodies_take_bounded_time() -> None:
    backslashes = b'a{x="' + b"\\" * 60_000 + b"\n"
    spaces = b"a{" + b" " * 60_000 + b"\n"
    with bounded(60, "reading it"):
        found = metrics((backslashes + spaces) * 30 + b"a 1\n" * (LINES + 10))
    assert len(found.samples("a")) <= MOST_SAMPLES
