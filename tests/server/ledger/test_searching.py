"""The ledger read backwards: filtered, in bounded stretches, nothing skipped and nothing twice."""

from __future__ import annotations

import pytest

from kvaudit.server.ledger import searching
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.searching import in_order, page_of
from kvaudit.server.ledger.services import Act, record_all

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _ninety(monkeypatch):
    monkeypatch.setattr(searching, "PAGE", 10)
    monkeypatch.setattr(searching, "STRETCH", 30)
    monkeypatch.setattr(searching, "BATCH", 7)
    for number in range(0, 90, 3):
        record_all(
            actor="user:ada", acts=[Act("run.finished", f"run:{number}"), Act("run.requested", "run:x")]
        )
        record_all(actor="user:bob", acts=[Act("pin.set", "fleet pin sglang")])


def everything(**filters):
    """Sequences of all pages, as somebody who follows every link would see them."""
    seen, below = [], None
    for _ in range(100):
        found = page_of(Entry.objects.all(), below=below, **filters)
        seen += [entry.sequence for entry in found.entries]
        if not found.older:
            return seen
        below = found.older
    raise AssertionError("the pages do not end")


def test_all_pages_together_are_the_whole_ledger_once():
    assert everything() == list(range(90, 0, -1))


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"kind": "run."}, lambda entry: entry.kind.startswith("run.")),
        ({"kind": "pin.set", "actor": "BOB"}, lambda entry: entry.kind == "pin.set"),
        ({"actor": "ada", "kind": "run.f"}, lambda entry: entry.kind == "run.finished"),
        ({"subject": "fleet"}, lambda entry: entry.subject.startswith("fleet")),
        ({"subject": "run:42"}, lambda entry: entry.subject == "run:42"),
        ({"subject": "run:3"}, lambda entry: entry.subject == "run:3"),
        ({"subject": "run:"}, lambda entry: entry.subject.startswith("run:")),
        ({"kind": "%"}, lambda entry: False),
    ],
)
def test_filters_keep_what_they_say(filters, kept):
    wanted = [entry.sequence for entry in Entry.objects.order_by("-sequence") if kept(entry)]
    assert everything(**filters) == wanted


def test_a_page_looks_at_one_stretch_and_says_how_far_it_got(django_assert_num_queries):
    with django_assert_num_queries(2):
        found = page_of(Entry.objects.all(), subject="run:0")
    assert (list(found.entries), found.older, found.searched_to) == ([], 61, 61)
    assert page_of(Entry.objects.all(), below=31).searched_to == 0


def test_in_order_goes_from_the_first_to_where_it_is_told():
    assert [entry.sequence for entry in in_order(Entry.objects.all(), 40)] == list(range(1, 41))
