"""Pages of a sorted list: every row once, forwards and backwards, though rows come and go."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from kvaudit.server.web.kit.slicing import cut


@dataclass
class Place:
    after: str = ""
    before: str = ""
    sort: str = "name"


def position(row: str, sort: str) -> str:
    return f"~{row}"


def rows(count: int) -> list[str]:
    return [f"{number:03d}" for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 35])
def test_pages_forwards_hold_every_row_once_and_backwards_the_same(count: int) -> None:
    pages, place = [], Place()
    while True:
        page = cut(rows(count), position, place, 10)
        pages.append(page)
        if not page.after:
            break
        place = Place(after=page.after)
    assert [row for page in pages for row in page.rows] == rows(count)
    assert [(page.first, page.last) for page in pages] == [
        (start + 1 if count else 0, min(start + 10, count)) for start in range(0, max(count, 1), 10)
    ]
    assert {page.total for page in pages} == {count}
    assert pages[0].before == ""
    for earlier, later in pairwise(pages):
        assert cut(rows(count), position, Place(before=later.before), 10) == earlier


def test_a_position_whose_row_has_gone_still_has_a_place() -> None:
    left = [row for row in rows(30) if row != "009"]
    assert cut(left, position, Place(after="~009"), 10).rows[0] == "010"
    assert cut(left, position, Place(before="~009"), 10).rows == rows(9)


@pytest.mark.parametrize("place", [Place(after="\U0001f600"), Place(before="~"), Place(after="~~")])
def test_a_position_beyond_the_list_is_an_empty_page(place: Place) -> None:
    page = cut(rows(30), position, place, 10)
    assert (list(page.rows), page.first, page.before, page.after) == ([], 0, "", "")
