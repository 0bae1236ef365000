"""Both tenants hold one key: what a tenant gets back of the other is then its own, and every check would pass."""

from __future__ import annotations

from tests.redteam.case import Case
from tests.redteam.wanted import Check, Happened, NothingSent

CASES = tuple(
    Case(
        f"same_key/{check}",
        "odd",
        (Happened(0), Check(check, "error"), NothingSent()),
        checks=(check,),
        one_key=True,
        fast=True,
    )
    for check in ("canary", "prefix")
)
