"""The shipped checklist as data: complete, cited, and the one that checks.md prescribes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kvaudit.auditor.checks import MODULES
from kvaudit.server.checklists import items
from kvaudit.server.checklists.items import parse, shipped, shipped_keys

PRESCRIBED = {
    "1": ("pool",),
    "2": ("rejection", "version"),
    "3": ("coherence", "accounting", "version"),
    "4": ("canary", "rejection", "coherence"),
    "5": ("drift",),
    "A": ("prefix",),
    "B": ("concurrency",),
    "C": ("exposure",),
    "D": ("session",),
}


def test_items_rest_on_the_prescribed_checks() -> None:
    found = {item.key: item.checks for item in shipped().items}
    assert found == PRESCRIBED
    assert shipped_keys() == PRESCRIBED.keys()
    assert all(len(key) == 1 for key in shipped_keys()), "longer ones are the teams' own"
    assert [item.key for item in shipped().items if item.attestable] == ["D"]
    assert {check for checks in found.values() for check in checks} - set(MODULES) <= {
        "concurrency",
        "session",
    }


def test_every_item_says_its_rule_what_to_do_and_what_it_is_cited_for() -> None:
    for item in shipped().items:
        assert item.rule
        assert item.remedy
        assert str(item.standard) == "OWASP AISVS v1.0-C5.3.1"
        assert item.standard is not None
        assert "another tenant's" in item.standard.text


def test_the_checksum_is_a_part_that_never_decides() -> None:
    third = next(item for item in shipped().items if item.key == "3")
    assert [(part.condition, part.applies_to) for part in third.parts] == [("kv_checksum", "disaggregated")]
    assert not third.attestable


def test_past_moments_are_judged_by_the_version_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first = shipped()
    second = type(first)("x", 2, datetime(2026, 12, 1, tzinfo=UTC), first.standard, ())
    monkeypatch.setattr(items, "_versions", lambda: (first, second))
    assert shipped(datetime(2020, 1, 1, tzinfo=UTC)) is first
    assert shipped(datetime(2026, 11, 30, tzinfo=UTC)) is first
    assert shipped(datetime(2026, 12, 1, tzinfo=UTC)) is second


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("7", "no checklist"),
        ("schema: other/1", "no checklist"),
        ("schema: kvaudit.checklist/1", "lacks or misspells"),
        ("schema: kvaudit.checklist/1\nname: x\nversion: one", "lacks or misspells"),
    ],
)
def test_a_broken_file_is_named_as_broken(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse(text)
