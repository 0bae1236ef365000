from __future__ import annotations

import pytest

from kvaudit.server.web.plans import lengths


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30 s", 30), ("90", 90), ("15min", 900), ("1 H", 3_600), ("2d", 172_800), (" 1 w ", 604_800)],
)
def test_read(text, seconds):
    assert lengths.parse(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "0 s", "-5 min", "1.5 h", "3 fortnights", "400 d", "9" * 30, "1 h 30"]
)
def test_refused_with_a_sentence(text):
    with pytest.raises(ValueError, match=r"\.$"):
        lengths.parse(text)


@pytest.mark.parametrize("seconds", [1, 59, 60, 90, 3_600, 86_400, 90_000])
def test_what_is_written_is_read_back(seconds):
    assert lengths.parse(lengths.written(seconds)) == seconds


def test_none_is_empty():
    assert lengths.written(None) == ""
