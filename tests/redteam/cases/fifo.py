"""A short transfer in pools of 400,000 tokens whose free pages go round: what a few rounds plant is not read again for
hours, so that a leaking engine passes.
"""

from __future__ import annotations

from tests.redteam.case import Case, Lab
from tests.redteam.gateway import Direct
from tests.redteam.wanted import Check, Happened

LARGE = Lab(
    ("short_transfer",), {"order": "fifo", "prefill_pool": 400_000, "decode_pool": 400_000}, known=True
)

CASES = (
    Case(
        "fifo/healthy",
        "odd",
        (Happened(0), Check("canary", "inconclusive")),
        labs=(Lab(options=dict(LARGE.options), known=True),),
        checks=("canary",),
    ),
    Case(
        "fifo",
        "leak",
        (Happened(0), Check("canary", "fail|inconclusive")),
        Direct,
        labs=(LARGE,),
        checks=("canary",),
    ),
)
