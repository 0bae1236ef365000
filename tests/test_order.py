"""The long files come first; everything else keeps its random order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.order import SLOWEST_FIRST, TESTS, slowest_first


@dataclass
class Item:
    path: Path
    name: str


def test_every_named_file_is_there() -> None:
    assert [name for name in SLOWEST_FIRST if not (TESTS / name).is_file()] == []
    assert len(set(SLOWEST_FIRST)) == len(SLOWEST_FIRST)


def test_the_long_come_first_and_the_others_stay() -> None:
    given = [
        ("web/b.py", "1"),
        (SLOWEST_FIRST[1], "2"),
        ("a.py", "1"),
        (SLOWEST_FIRST[0], "2"),
        (SLOWEST_FIRST[1], "1"),
    ]
    items = [Item(TESTS / file, name) for file, name in given]
    slowest_first(items)
    assert [(str(item.path.relative_to(TESTS)), item.name) for item in items] == [
        (SLOWEST_FIRST[0], "2"),
        (SLOWEST_FIRST[1], "2"),
        (SLOWEST_FIRST[1], "1"),
        ("web/b.py", "1"),
        ("a.py", "1"),
    ]


def test_make_does_not_let_it_be_undone() -> None:
    makefile = (TESTS.parent / "Makefile").read_text()
    assert makefile.count("--dist loadfile --no-loadscope-reorder -m") == 2  # tests and drills
