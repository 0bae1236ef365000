"""No cell of an export is a formula, and rows stream."""

from __future__ import annotations

import csv
import io

import pytest

from kvaudit.web.spreadsheets import lines, safe


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
