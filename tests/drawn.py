"""How many cases a property is tried with where each costs a tenth of a second and more."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("KVAUDIT_DRAW", "1"))


def cases(number: int) -> int:
    """So many with every run of the tests; ``make soak`` draws twenty times as many."""
    return number * TIMES
