"""Does the live KV pool hold the largest request that a client may send?

Every rank of every node given must hold ``headroom`` times the context, read from the running
process. Where a disaggregated pair's prefill side refuses lengths that its decode side would take,
the lengths between the two limits are the danger zone: on affected builds such a request is refused
and still runs over other requests' pages.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="pool",
    title="KV pool against context length",
    why="A pool smaller than the longest accepted request sends long prompts down a rejection path; in "
    "disaggregated serving that path has handed one tenant's pages to another.",
    kind="passive",
    order=1,
    required=True,
    gate=True,
    cadence="hourly",
    read_at_gate=True,
    shows="cause",
)
