"""Plain scalars by YAML 1.2's core rules."""

import pytest

from kvaudit.auditor.fleetfile.tree import Unreadable, compose, scalar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("False", False), ("5", 5), ("1_000", 1000),
        ("-3", -3), ("1.25", 1.25), ("01:30", "01:30"), ("no", "no"), ("on", "on"), ("0x10", "0x10"), ("1e3", "1e3"),
        (".nan", ".nan"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_scalar(text, expected):
    found = scalar(text)
    assert found == expected
    assert type(found) is type(expected)


def test_quoted_scalars_stay_text():
    root = compose("a: '5'\nb: 5\n")
    assert [branch.value for _, branch in root.value] == ["5", 5]


def test_lines_are_those_of_the_file():
    root = compose("a:\n  - x\n\n  - y\n")
    (_, items) = root.value[0]
    assert [item.line for item in items.value] == [2, 4]


def test_twelve_levels_are_enough_for_anybody():
    compose("[" * 12 + "]" * 12)
    with pytest.raises(Unreadable):
        compose("[" * 13 + "]" * 13)
