"""Request logs as they come: CSV, JSON lines, broken lines, hostile ones, endless ones."""

from __future__ import annotations

import io
import tracemalloc
from datetime import UTC, datetime

import pytest

from kvaudit.server.inquiries.request_logs.reader import LONGEST_LINE, NoLog, Problem, Request, moment, read

AT = datetime(2026, 9, 1, 12, tzinfo=UTC)
HEAD = b"time,prompt_tokens,tenant,id,prefill_seconds\n"


def reads(body: bytes):
    return list(read(io.BytesIO(body)))


@pytest.mark.parametrize(
    "body",
    [
        HEAD + b"2026-09-01T12:00:00Z,700000,acme,r-1,3.5\n",
        b"\xef\xbb\xbf" + HEAD.replace(b",", b";") + b"2026-09-01 12:00:00;700000;acme;r-1;3.5\r\n",
        b"timestamp\tinput_tokens\torg\trequest_id\tttft\n1788264000\t700000\tacme\tr-1\t3.5\n",
        b'\n{"time":"2026-09-01T14:00:00+02:00","prompt_tokens":700000,"tenant":"acme","id":"r-1","prefill_seconds":3.5}\n',
        b'{"ts":1788264000000,"tokens":700000.0,"tenant":"acme","trace_id":"r-1","prefill_time":"3.5"}',
    ],
)
def test_every_form_reads_the_same(body):
    (found,) = reads(body)
    assert isinstance(found, Request)
    assert (found.at, found.tokens, found.tenant, found.id, found.prefill) == (
        AT,
        700_000,
        "acme",
        "r-1",
        3.5,
    )


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"soon,7,acme,1,", b"time"),
        (b"2026-09-01T12:00:00Z,many,acme,1,", b"prompt_tokens"),
        (b"2026-09-01T12:00:00Z,-7,acme,1,", b"prompt_tokens"),
        (b"2026-09-01T12:00:00Z,7.5,acme,1,", b"prompt_tokens"),
        (b"2026-09-01T12:00:00Z,99999999999999999999,acme,1,", b"prompt_tokens"),
        (b"2026-09-01T12:00:00Z,7, ,1,", b"tenant"),
        (b"2026-09-01T12:00:00Z,7,acme,1,fast", b"prefill_seconds"),
        (b"2026-09-01T12:00:00Z,7,acme,1,nan", b"prefill_seconds"),
        (b"2026-09-01T12:00:00Z,7,acme,1,0", b"prefill_seconds"),
        (b'2026-09-01T12:00:00Z,7,"acme,1,2', b"quotation"),
        (b"a,b,c,d,e,f,g", b"columns"),
        (b"2026-09-01T12:00:00Z", b"prompt_tokens"),
        (b"x" * (3 * LONGEST_LINE), b"longer"),
        (b"2026-09-01T12:00:00Z,7," + b"t" * 2_000 + b",1,", b"longer"),
        (b"\x00\xff\xfe,\x00,\x00,,", b"time"),
        (b"1e999,7,acme,1,", b"time"),
    ],
)
def test_a_bad_line_is_a_problem_with_its_number_and_no_end(line, word):
    good = b"2026-09-01T12:00:00Z,7,acme,1,\n"
    before, bad, after = reads(HEAD + good + line + b"\n" + good)
    assert isinstance(before, Request)
    assert isinstance(after, Request)
    assert isinstance(bad, Problem)
    assert bad.line == 3
    assert word.decode() in bad.sentence
    assert after.line == 4


@pytest.mark.parametrize(
    "line", [b"[1]", b'{"time":', b"7", b'"x"', b'{"time":{"a":1},"prompt_tokens":[],"tenant":{}}']
)
def test_bad_json_lines_are_problems(line):
    good = b'{"time":"2026-09-01T12:00:00Z","prompt_tokens":7,"tenant":"acme"}\n'
    found = reads(good + line + b"\n" + good)
    assert [type(each) for each in found] == [Request, Problem, Request]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"a,b,c\n1,2,3\n", "no column time"),
        (b"[{}]", "one JSON list"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b"\xff\xfet\x00", "UTF-16"),
        (b"x" * (2 * LONGEST_LINE), "longer"),
        (b'"time,tenant\n', "cannot be read as CSV"),
    ],
)
def test_what_is_no_log_is_refused_in_a_sentence(body, word):
    with pytest.raises(NoLog, match=word):
        reads(body)


@pytest.mark.parametrize(
    "value", [None, True, [], "", "soon", -1, 0, float("nan"), float("inf"), "1e400", 10**40]
)
def test_what_is_no_time(value):
    assert moment(value) is None


@pytest.mark.parametrize(
    "value", [1_788_264_000, 1_788_264_000_000, 1_788_264_000_000_000, 1_788_264_000_000_000_000.0]
)
def test_seconds_to_nanoseconds(value):
    assert moment(value) == AT


class Endless(io.RawIOBase):
    """A log of ``size`` bytes that no memory holds."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.first = True

    def readline(self, size=-1):
        if self.first:
            self.first = False
            return HEAD
        if self.left <= 0:
            return b""
        line = b"2026-09-01T12:00:00Z,700000,acme,r-1,3.5\n" if self.left % 2 else b"\xffbroken" * 9_000
        self.left -= len(line)
        return line[:size]


def test_memory_does_not_grow_with_the_log():
    tracemalloc.start()
    for _ in read(Endless(50_000_000)):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
