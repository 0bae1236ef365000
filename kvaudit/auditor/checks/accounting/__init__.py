"""Do the engine's own counts agree with what was sent?

Unique prompts of known length, different from their first token on: the prompt must be counted as
what it is (a placeholder shows as 1), and nothing of it can have been cached, since nobody ever sent
it. A clean account clears no other check: the incident's decode side counted every prompt in full.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="accounting",
    title="Prompt and cached token counts",
    why="A placeholder instead of a prompt, or a cache hit on a text never sent, shows in the counts first.",
    kind="active",
    order=5,
    tenants=1,
    required=True,
    cadence="daily",
    leak=frozenset({"critical"}),  # its answers are searched like those of any check
)
