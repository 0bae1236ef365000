from __future__ import annotations

import pytest

from kvaudit.server.web.kit.parts import windows

NIGHTS = {
    "days": ["mon", "tue", "wed", "thu", "fri"],
    "from": "22:00",
    "to": "06:00",
    "zone": "Europe/Berlin",
}


def test_a_line_becomes_a_window():
    assert windows.parse("mon-fri 22:00-06:00 Europe/Berlin") == [NIGHTS]
    assert windows.parse("2:00-4:30") == [{"days": [], "from": "02:00", "to": "04:30", "zone": "UTC"}]
    assert windows.parse("\n  \n") == []


@pytest.mark.parametrize(
    ("days", "found"),
    [("sat,sun", ["sat", "sun"]), ("sat-mon", ["sat", "sun", "mon"]), ("mon mon", ["mon"]), ("Mon", ["mon"])],
)
def test_days(days, found):
    assert windows.parse(f"{days} 01:00-02:00")[0]["days"] == found


@pytest.mark.parametrize(
    "line",
    ["at night", "mon-fri", "25:00-26:00", "moon 01:00-02:00", "01:00-02:00 Mars/Base", "01:00", "<b>"],
)
def test_a_bad_line_is_named(line):
    with pytest.raises(windows.WindowProblem, match="Line 2"):
        windows.parse(f"01:00-02:00\n{line}")


def test_what_is_written_is_read_back():
    assert windows.parse(windows.lines([NIGHTS, {"days": [], "from": "01:00", "to": "02:00"}])) == [
        NIGHTS,
        {"days": [], "from": "01:00", "to": "02:00", "zone": "UTC"},
    ]
