"""Streams CSV that no spreadsheet takes for formulas, and that says so where it broke off."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence

from django.http import HttpResponseBase

from kvaudit.auditor.text.acting import in_words
from kvaudit.server.inquiries.exports.watched import Cancelled
from kvaudit.server.web.kit.download import download

# OWASP, CSV injection: what begins with these is computed by one spreadsheet or another; the full-width
# ones are read as their narrow kin.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")

INCOMPLETE = "export incomplete: it broke off here. Export again; the log of the web server names the cause."
"""The last line of an export that failed after its status was sent."""


def last_line(fault: Exception) -> str:
    """What the last line of an export that did not come to its end says."""
    return str(fault) if isinstance(fault, Cancelled) else INCOMPLETE


class _Echo:
    """What csv.writer wants of a file; gives the line back instead of keeping it."""

    def write(self, line: str) -> str:
        return line


def safe(value: object) -> str:
    """One cell. Text that would be a formula gets an apostrophe, characters that would move their neighbours or that
    have no shape are named; numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, (int, float)):
        return str(value)
    text = str(value)
    told = text if text.isprintable() else in_words(text.replace("\r\n", "\n"))
    return f"'{told}" if text.lstrip(" ").startswith(_FORMULA) else told


def lines(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """CSV lines (RFC 4180), one row at a time. When ``rows`` fails, the last line says so."""
    writer = csv.writer(_Echo())
    try:
        for row in rows:
            yield writer.writerow([safe(value) for value in row])
    except Exception as fault:
        yield writer.writerow([last_line(fault)])
        raise  # so that the server logs it and cuts the transfer instead of ending it properly


def streamed(rows: Iterable[Sequence[object]], name: str) -> HttpResponseBase:
    """A download called ``name``; memory does not grow with the rows."""
    return download(lines(rows), name, "text/csv; charset=utf-8")
