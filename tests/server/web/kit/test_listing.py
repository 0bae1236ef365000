"""Lists: what an address may say, and pages that hold every row once, forwards and backwards, though rows come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

from kvaudit.server.accounts.models import User
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import Page, keyset_page, sorted_page
from tests.factories import a_user


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    q: str = listing.text()
    verdict: str = listing.choice(("pass", "fail"))
    missing: bool = listing.flag()
    since: str = listing.moment()
    sort: str = listing.choice(("name", "risk"), "risk", narrows=False)
    below: int | None = listing.number("from")
    after: str = listing.position()
    before: str = listing.position(numeric=True)


@pytest.mark.parametrize(
    ("query", "field", "value"),
    [
        ({"q": " chat\x00\u202e "}, "q", "chat"),
        ({"q": "x" * 5_000}, "q", "x" * 300),
        ({"verdict": "fail"}, "verdict", "fail"),
        ({"verdict": "green"}, "verdict", ""),
        ({"missing": "yes"}, "missing", True),
        ({"missing": "1"}, "missing", False),
        ({"since": "2026-09-01"}, "since", "2026-09-01"),
        ({"since": "soon"}, "since", ""),
        ({"sort": "name"}, "sort", "name"),
        ({"sort": "colour"}, "sort", "risk"),
        ({}, "sort", "risk"),
        ({"from": "12"}, "below", 12),
        ({"below": "12"}, "below", None),
        ({"from": "-1"}, "below", None),
        ({"from": "²"}, "below", None),
        ({"from": str(2**63)}, "below", None),
        ({"after": "~chat"}, "after", "~chat"),
        ({"before": "9" * 40}, "before", ""),
        ({"before": "7"}, "before", "7"),
    ],
)
def test_what_an_address_says(query: dict[str, str], field: str, value: object) -> None:
    assert getattr(Filters.from_query(query), field) == value


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"q": "\x00"}, "“[U+0000]” is nothing to filter by (q)."),
        ({"verdict": "green"}, "There is no such verdict as “green”: it is one of pass, fail."),
        ({"since": "soon"}, "“soon” is no date: write 2026-09-01 or 2026-09-01T14:30."),
        ({"q": " "}, ""),
        ({"from": "soon", "after": "\x00"}, ""),
    ],
)
def test_what_is_ignored_is_said(query: dict[str, str], said: str) -> None:
    filters = Filters.from_query(query)
    assert list(filters.ignored.values()) == ([said] if said else [])
    assert not filters.active


def test_neither_an_order_nor_a_position_narrows() -> None:
    assert not Filters.from_query({"sort": "name", "after": "x", "before": "1", "from": "3"}).active
    asked = Filters.from_query({"q": "chat", "missing": "yes", "sort": "name"})
    assert asked.narrowing == {"q": "chat", "missing": True}


@dataclass
class Place:
    after: str = ""
    before: str = ""


def rows(count: int) -> list[str]:
    return [f"{number:03d}" for number in range(count)]


def key(row: str) -> str:
    return f"~{row}"


def walked(ask: Callable[[Place], Page], count: int) -> list[Page]:
    """Every page forwards; backwards they are the same."""
    pages = [ask(Place())]
    while pages[-1].after:
        pages.append(ask(Place(after=pages[-1].after)))
        assert len(pages) <= count + 1
    assert pages[0].before == ""
    for earlier, later in pairwise(pages):
        assert ask(Place(before=later.before)) == earlier
    return pages


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 35])
def test_pages_of_a_sorted_list_hold_every_row_once(count: int) -> None:
    pages = walked(lambda place: sorted_page(rows(count), key, place, size=10), count)
    assert [row for page in pages for row in page.rows] == rows(count)
    assert [(page.first, page.last) for page in pages] == [
        (start + 1 if count else 0, min(start + 10, count)) for start in range(0, max(count, 1), 10)
    ]
    assert {page.total for page in pages} == {count}


def test_a_position_whose_row_has_gone_still_has_a_place() -> None:
    left = [row for row in rows(30) if row != "009"]
    assert sorted_page(left, key, Place(after="~009"), size=10).rows[0] == "010"
    assert sorted_page(left, key, Place(before="~009"), size=10).rows == rows(9)


@pytest.mark.parametrize("place", [Place(after="\U0001f600"), Place(before="~"), Place(after="~~")])
def test_a_position_beyond_the_list_is_an_empty_page(place: Place) -> None:
    page = sorted_page(rows(30), key, place, size=10)
    assert (list(page.rows), page.first, page.before, page.after) == ([], 0, "", "")


@pytest.mark.django_db
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_pages_of_the_database_hold_every_row_once(
    count: int, newest_first: bool, django_assert_num_queries
) -> None:
    made = [a_user(f"user-{number}") for number in range(count)]

    def ask(place: Place) -> Page:
        with django_assert_num_queries(1):
            return keyset_page(User.objects.all(), "pk", place, newest_first=newest_first, size=2)

    pages = walked(ask, count)
    assert [row for page in pages for row in page.rows] == (made[::-1] if newest_first else made)
    assert {page.total for page in pages} == {None}


@pytest.mark.django_db
def test_a_row_that_has_gone_from_the_database_still_has_a_place() -> None:
    made = [a_user(f"user-{number}") for number in range(5)]
    made[2].delete()
    page = keyset_page(User.objects.all(), "username", Place(after="user-2"), size=2)
    assert [user.username for user in page.rows] == ["user-3", "user-4"]
