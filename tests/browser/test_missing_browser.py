"""A browser that is missing: skipped on somebody's own machine, a failure in CI."""

from __future__ import annotations

import pytest

from tests.browser.conftest import without


@pytest.mark.parametrize("value", ["true", "1", "True", "yes", "woodpecker"])
def test_in_ci_it_fails(value: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no browser at /none: .*may not be skipped"):
        without("/none", {"CI": value})


@pytest.mark.parametrize("environ", [{}, {"CI": ""}, {"CI": "false"}, {"CI": "0"}])
def test_elsewhere_it_is_skipped(environ: dict[str, str]) -> None:
    with pytest.raises(pytest.skip.Exception, match="no browser at /none"):
        without("/none", environ)
