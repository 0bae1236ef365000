"""A prompt whose last page is half empty (length mod 16 in 0 to 6) is answered out of the other tenant's last prompt, at
any length from 1,025 to 8,100. vllm#50749: the damage depends on the prompt's length mod 16 (21 of 31 against 0 of 17).
"""

from __future__ import annotations

from tests.redteam.case import Case
from tests.redteam.leaking import AnswersOfOthers
from tests.redteam.wanted import SomeFail

CASES = (
    Case(
        "residue",
        "leak",
        (SomeFail(),),
        AnswersOfOthers,
        {"residues": range(7), "at": range(1_025, 8_101)},
    ),
    Case(
        "residue/long",
        "leak",
        (SomeFail(),),
        AnswersOfOthers,
        {"residues": range(7), "at": range(4_000, 8_101)},
    ),
    Case(
        "residue/nine",
        "leak",
        (SomeFail(),),
        AnswersOfOthers,
        {"residues": [9], "at": range(128, 8_101)},
        checks=("canary",),
        prompt_tokens=None,
    ),
)
