"""Rows of healthy targets that do not look like it: no check may fail on any of them."""

from __future__ import annotations

from kvaudit.auditor.checks import ACTIVE
from kvaudit.lab.expectation import COMPACT, Expectation

UNHARMED = dict.fromkeys(ACTIVE, "pass|inconclusive")
"""Where a check cannot ask enough it says so; it never says *fail*."""


ODDITIES = (
    Expectation("restart", ("restart",), UNHARMED, COMPACT),
    Expectation("rate_limit", ("rate_limit",), UNHARMED, COMPACT),
    Expectation("guardrail", ("guardrail",), UNHARMED, COMPACT),
    Expectation("reasoning_model", ("reasoning_model",), UNHARMED, COMPACT),
    Expectation("system_prompt", ("system_prompt",), UNHARMED, COMPACT),
    Expectation("short_system_prompt", ("short_system_prompt",), UNHARMED, COMPACT),
    Expectation("short_memory", ("short_memory",), UNHARMED, COMPACT),
    Expectation("content_parts", ("content_parts",), UNHARMED, COMPACT),
)
