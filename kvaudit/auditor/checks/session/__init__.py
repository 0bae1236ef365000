"""Does a shared pool that is no KV cache give one account what another left in it?

Sessions, slots, connections and buffers are reused as pages are. Two accounts play the whole life of a
session over an API that the fleet file describes (docs/active/session.md): A fills the pool with markers
and releases in four ways, B claims and reads before writing; A comes back with old handles, saves late,
and is cut off. Data comes back verbatim here, so one foreign marker decides.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="session",
    title="Other shared pools",
    why="A slot, connection or buffer that is handed on without being reset shows the next account what the last one "
    "left: the KV incident's shape, in every pool that is reused.",
    kind="active",
    order=12,
    tenants=2,
    leak=frozenset({"critical"}),
    boundary=frozenset({"high"}),
    opt_in=True,
    probed=False,
)
