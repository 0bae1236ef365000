"""Every prompt of a band of lengths is answered out of the other tenant's last prompt: a chunk boundary, a graph size, a
pool of its own for short requests. tt-metal#54413: damage at some lengths only. No length outside is touched.
"""

from __future__ import annotations

from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT
from tests.redteam.leaking import AnswersOfOthers
from tests.redteam.wanted import SomeFail


def _band(name: str, low: int, high: int) -> Case:
    at = {"at": range(low, high)}
    return Case(name, "leak", (SomeFail(),), AnswersOfOthers, at, checks=("canary",), prompt_tokens=None)


CASES = (
    _band("band", 5_800, 7_300),
    _band("band/low", 1_300, 4_000),
    _band("band/short", 128, 250),
    _band("band/boundary", 8_000, LIMIT),
)
