"""A gateway that changes nothing, in front of a healthy lab: what passes here must not pass in front of a leak."""

from __future__ import annotations

from tests.redteam.case import Case
from tests.redteam.wanted import AllPass

CASES = (
    Case("control", "control", (AllPass(),), fast=True),
    Case("control/canary_short", "control", (AllPass(),), checks=("canary",)),
    Case("control/canary", "control", (AllPass(),), checks=("canary",), prompt_tokens=None),
)
