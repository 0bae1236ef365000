from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.notify.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    from tests.server.notify.receiver import Receiver  # models: only when the apps are loaded

    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()
