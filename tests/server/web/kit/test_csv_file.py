"""No cell of an export is a formula, and rows stream."""

from __future__ import annotations

import csv
import io

import pytest

from kvaudit.server.web.kit.csv_file import INCOMPLETE, lines, safe


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", "－1", "=\x00cmd"]
)
def test_what_a_spreadsheet_would_compute_is_text(text):
    assert safe(text).startswith("'")
    assert "\x00" not in safe(text)


@pytest.mark.parametrize(
    ("value", "shown"), [("plain", "plain"), (-3, "-3"), (1.5, "1.5"), (None, ""), ("", ""), ("a=b", "a=b")]
)
def test_everything_else_stays_as_it_is(value, shown):
    assert safe(value) == shown


def test_rows_come_one_at_a_time_and_read_back():
    made = []

    def rows():
        for number in range(3):
            made.append(number)
            yield [number, 'a "quoted", cell\nof two lines']

    stream = lines(rows())
    first = next(stream)
    assert made == [0]
    text = first + "".join(stream)
    assert list(csv.reader(io.StringIO(text))) == [
        [str(n), 'a "quoted", cell\nof two lines'] for n in range(3)
    ]


def test_rows_that_fail_end_with_a_line_that_says_so_and_cut_the_transfer():
    def rows():
        yield ["head"]
        yield [1]
        raise OSError("the database went away at 10.0.0.7")

    stream = lines(rows())
    assert [next(stream) for _ in range(3)] == ["head\r\n", "1\r\n", f"{INCOMPLETE}\r\n"]
    assert INCOMPLETE.startswith("export incomplete: ")
    with pytest.raises(OSError, match="went away"):
        next(stream)


def test_a_reader_who_leaves_is_no_failure():
    stream = lines([[1], [2]])
    next(stream)
    stream.close()  # a generator that yields once more here raises RuntimeError
