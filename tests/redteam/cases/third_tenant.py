"""Of four tenants only the third one's answers come out of another's last prompt: its keys lie in a pool of their own."""

from __future__ import annotations

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.leaking import AnswersOfOthers
from tests.redteam.wanted import SomeFail


class ThirdTenant(AnswersOfOthers):
    key = "sk-lab-tenant-c"

    def leaks(self, asked: Asked) -> bool:
        return asked.key == self.key


CASES = (
    Case(
        "third_tenant",
        "leak",
        (SomeFail(),),
        ThirdTenant,
        tenants=4,
    ),
)
