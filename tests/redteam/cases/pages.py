"""The engine reads another tenant's pages in place of some of the prompt's own, and the lab's model answers out of what
it then reads. All but the last page: the end of the prompt is right, so a word asked there comes back all the same.
In the middle or at the beginning: a chunk that never arrived (vllm#54193), at the end: a transfer that ran short.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.redteam.case import Case
from tests.redteam.leaking import PagesOfOthers
from tests.redteam.wanted import NeverAllPass, Rule, SomeFail

LAST = 4  # pages of 16 tokens: one of a real engine's


def _case(name: str, foreign: Callable[[int, int], bool], *wanted: Rule) -> Case:
    parameters = {"foreign": foreign}
    return Case(
        f"pages/{name}",
        "leak",
        wanted,
        PagesOfOthers,
        parameters,
        checks=("canary",),
    )


CASES = (
    _case("all_but_last", lambda page, pages: page < pages - LAST, SomeFail()),
    _case("first", lambda page, pages: page < pages * 0.6, SomeFail()),
    _case("middle", lambda page, pages: pages * 0.2 < page < pages * 0.8, SomeFail()),
    _case("last", lambda page, pages: pages * 0.4 < page < pages - LAST, SomeFail()),
    _case("every_other", lambda page, pages: page % 2 == 0 and page < pages - LAST, NeverAllPass()),
)
