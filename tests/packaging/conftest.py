"""The wheel is built once for all of these tests, and each environment once for those of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging import wheel as wheels


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., wheels.Installed]:
    """``installed("lab", "stats")``: an environment with these extras."""
    made: dict[tuple[str, ...], wheels.Installed] = {}

    def give(*extras: str) -> wheels.Installed:
        if extras not in made:
            made[extras] = wheels.install(wheel, extras, tmp_path_factory.mktemp("installed"))
        return made[extras]

    return give
