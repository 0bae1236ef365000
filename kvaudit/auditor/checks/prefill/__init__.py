"""Is any prefill too fast to be true?

A leaked request skips its prefill: one page instead of ten thousand. Time to first token is fitted
over unique prompts of many lengths, and the longest accepted length, like every length at or above
the limit that was answered, is held against the fit. An oddly fast long prompt is not a win.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="prefill",
    title="Prefill too fast to be true",
    why="An answer that begins before the prompt can have been read did not read it.",
    kind="active",
    order=9,
    tenants=1,
    leak=frozenset({"critical"}),
    probed=False,
    packages=("numpy", "scipy"),
)
