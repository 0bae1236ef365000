"""What happens at the boundary: is a prompt that is too long refused before anything of it runs?

Prompts of exact lengths climb a ladder around N, the first length that the engine should refuse, each
ending in a fresh nonce. A refusal counts only where, in the same repeat, N-1 was answered with its
nonce and the error names the length: a wrong parameter must not turn the ladder green. A 200 without
the nonce, two times of three, is the incident itself: the prompt was not read, whatever answered.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import ANY, Check
from kvaudit.auditor.checks.rejection.lengths import answered, failing

CHECK = Check(
    id="rejection",
    title="Rejection at the boundary",
    why="The incident's prompts were refused inside the engine and answered all the same, with HTTP 200 and "
    "another tenant's text. Only the content at exact lengths shows it.",
    kind="active",
    order=6,
    tenants=1,
    required=True,
    gate=True,
    cadence="nightly",
    leak=frozenset({"critical"}),
    boundary=ANY,
    bounds=True,
    replayable=True,
    shows="outcome",
    drawn=("rungs",),
    failing_lengths=failing,
    answered_lengths=answered,
)
