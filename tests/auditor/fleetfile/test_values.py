"""Single values, each with its sentence."""

import pytest

from kvaudit.auditor.fleetfile import values
from kvaudit.auditor.fleetfile.values import InvalidValue


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://h", "http://h"),
        (" https://h:8443/base/ ", "https://h:8443/base"),
        ("http://[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_url(given, expected):
    assert values.url(given) == expected


@pytest.mark.parametrize(
    "given",
    ["", "h:1", "http://", "http://h b", "http://h\n", "http://h/#x", "http://[::1", None, 5, "http://h\x00"],
)
def test_bad_url(given):
    if given == "http://h\n":
        assert values.url(given) == "http://h"  # surrounding white space is dropped
        return
    with pytest.raises(InvalidValue, match="url"):
        values.url(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(5, 5), ("5", 5), ("1_048_576", 1_048_576), ("1,048,576", 1_048_576), (10**12, 10**12)],
)
def test_tokens(given, expected):
    assert values.tokens(given, "context") == expected


@pytest.mark.parametrize("given", [0, -1, 10**12 + 1, 1.5, True, None, "", "1e6", "x", "9" * 5000, [1]])
def test_bad_tokens(given):
    with pytest.raises(InvalidValue, match="context"):
        values.tokens(given, "context")


@pytest.mark.parametrize("given", [0.99, 0, -1, float("nan"), float("inf"), "x", None, True, 10**400, "nan"])
def test_bad_headroom(given):
    with pytest.raises(InvalidValue, match="headroom"):
        values.headroom(given)


@pytest.mark.parametrize(("given", "expected"), [(1, 1.0), ("1.25", 1.25), (1.0, 1.0)])
def test_headroom(given, expected):
    assert values.headroom(given) == expected


@pytest.mark.parametrize(
    ("given", "seconds"), [(90, 90), ("90", 90), ("90s", 90), ("15 m", 900), ("1h", 3600), ("2d", 172_800)]
)
def test_duration(given, seconds):
    assert values.duration(given, "every") == seconds


@pytest.mark.parametrize("given", ["", "1w", "-1h", "1.5h", None, True, "h"])
def test_bad_duration(given):
    with pytest.raises(InvalidValue, match="time span"):
        values.duration(given, "every")


@pytest.mark.parametrize("given", ["lower", "A-B", "1A", "", None, "A" * 129, "sk-1", "A B"])
def test_bad_variable(given):
    with pytest.raises(InvalidValue, match="never the key itself"):
        values.variable(given, "key_env")


def test_suggestions():
    assert values.suggestion("decod", values.ROLES) == "did you mean decode?"
    assert values.suggestion("xyz", ("a", "b")) == "use one of a, b."
