"""After 40 idle seconds the first answer comes out of the other tenant's last prompt: pages were given up meanwhile, and
are read all the same. vllm#52234, Mooncake#850.
"""

from __future__ import annotations

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.leaking import AnswersOfOthers
from tests.redteam.wanted import SomeFail


class AfterIdleTime(AnswersOfOthers):
    idle = 40.0  # seconds
    before = 0.0

    def leaks(self, asked: Asked) -> bool:
        idle, self.before = asked.at - self.before, asked.at
        return idle >= self.idle


CASES = (
    Case(
        "dwell",
        "leak",
        (SomeFail(),),
        AfterIdleTime,
        checks=("canary",),
        prompt_tokens=None,
    ),
)
