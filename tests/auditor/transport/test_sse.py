"""Server-sent events in any chunking, and what an engine's events mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.transport.sse import Event, EventParser
from tests import servers
from tests.waiting import bounded


def parsed(*chunks: bytes) -> list[str]:
    parser = EventParser()
    return [event.data for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"data: a\n\n"], ["a"]),
        ([b"data:a\n\n"], ["a"]),
        ([b"data: a\r\n\r\ndata: b\r\n\r\n"], ["a", "b"]),
        ([b"data: a\r\rdata: b\r\r\n"], ["a", "b"]),
        ([b"data: a\r", b"\n\r", b"\ndata: b\n\n"], ["a", "b"]),
        ([b"da", b"ta: a", b"\n", b"\n"], ["a"]),
        ([b"data: a\ndata: b\n\n"], ["a\nb"]),
        ([b": keep-alive\n\ndata: a\n\n"], ["a"]),
        ([b"\xef\xbb\xbfdata: a\n\n"], ["a"]),
        ([b"event: error\nid: 7\nretry: 10\ndata: a\n\n"], ["a"]),
        ([b"data\n\n"], [""]),
        ([b"data: \xc3", b"\xa9\n\n"], ["é"]),
        ([b"data: unfinished"], []),
        ([b"\n\n\n"], []),
    ],
)
def test_parser(chunks: list[bytes], expected: list[str]) -> None:
    assert parsed(*chunks) == expected


def test_a_line_that_drips_in_costs_its_length_not_its_square() -> None:
    """Between two bytes nothing waits, so a costly parser would also hold up every deadline."""
    parser = EventParser()
    with bounded(60, "a line of half a million bytes one by one"):  # a second; the square: minutes
        parser.feed(b"data: ")
        for _ in range(500_000):
            assert not parser.feed(b"a")
        assert parser.unfinished
        assert [len(event.data) for event in parser.feed(b"\n\n")] == [500_000]


@given(st.lists(st.integers(1, 40), max_size=60))
def test_chunking_never_matters(cuts: list[int]) -> None:
    body = b": hi\r\n\r\ndata: one\ndata: two\r\n\r\nevent: error\rdata: three\r\rdata: [DONE]\n\n"
    chunks, rest = [], body
    for cut in cuts:
        chunks.append(rest[:cut])
        rest = rest[cut:]
    assert parsed(*chunks, rest) == parsed(body) == ["one\ntwo", "three", "[DONE]"]


def test_recorded_stream() -> None:
    events = EventParser().feed(servers.recorded("vllm-0.32.0/h_stream.http").body.rstrip(b"\n") + b"\n\n")
    assert "".join(event.text for event in events) == "OOO"
    assert events[0].text == ""  # the role, before the first token
    assert events[-1].done
    assert not any(event.error for event in events)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"error": {"message": "too long", "code": 400}}, "too long"),
        ({"error": "too long"}, "too long"),
        ({"object": "error", "message": "too long", "code": 400}, "too long"),
        ({"error": {"code": 7}}, '{"code":7}'),
        ({"meta_info": {"finish_reason": {"type": "abort", "message": "gave up"}}, "text": ""}, "gave up"),
        ({"choices": [{"finish_reason": "abort", "text": ""}]}, "finish_reason abort"),
        ({"choices": [{"finish_reason": "stop", "text": "x"}]}, ""),
        ({"choices": [{"delta": {"content": "error"}}]}, ""),
        ({"error": None, "choices": []}, ""),
        ([], ""),
        (7, ""),
    ],
)
def test_error_inside_a_200(payload: object, error: str) -> None:
    assert Event(json.dumps(payload)).error == error


def test_error_by_event_name() -> None:
    assert Event("overloaded", event="error").error == "overloaded"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"choices": [{"text": "a"}]}, "a"),
        ({"choices": [{"delta": {"content": "a"}}]}, "a"),
        ({"choices": [{"delta": {"reasoning_content": "a"}}]}, "a"),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, ""),
        ({"text": "a", "meta_info": {}}, "a"),
        ({"choices": [{"delta": None}, 3, {"text": 4}]}, ""),
        ({"choices": {"text": "a"}}, ""),
        ("a", ""),
    ],
)
def test_generated_text(payload: object, text: str) -> None:
    assert Event(json.dumps(payload)).text == text


@given(st.text(max_size=80))
def test_any_data_is_survived(data: str) -> None:
    event = Event(data)
    assert isinstance(event.error + event.text, str)
