"""The other tenant's words come back in another dress, as an instructed model or a gateway's template writes them:
capitals, markdown, a JSON list, a numbered list, each word quoted.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.redteam.case import Case
from tests.redteam.leaking import AnswersOfOthers
from tests.redteam.wanted import SomeFail

DRESSES: dict[str, Callable[[str], str]] = {
    "title_case": str.title,
    "markdown": lambda said: " ".join(f"**{word}**" for word in said.split()),
    "json": lambda said: json.dumps(said.split()),
    "numbered": lambda said: "\n".join(f"{number}. {word}" for number, word in enumerate(said.split(), 1)),
    "quoted": lambda said: ", ".join(f'"{word}"' for word in said.split()),
    "hyphens": lambda said: "-".join(said.split()),
}

CASES = tuple(
    Case(
        f"dressed/{name}",
        "leak",
        (SomeFail(),),
        AnswersOfOthers,
        {"dressed": dress, "at": range(1_000, 8_186)},
        checks=("rejection", "canary"),
        fast=name == "json",
    )
    for name, dress in DRESSES.items()
)
