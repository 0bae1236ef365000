"""Can text planted by one tenant surface in another tenant's answer?

Every request of this check, attackers included, is numbered frames of its own marker: the engine may throw the
attacker's prompt away, so whoever's pages are read must advertise themselves. A run of four words of any live marker
that is not this request's own is a hit. Half of the prompts end in a nonce question, which the last page alone
answers; half ask for the phrase that stands only before it, so that a stranger's pages answer with the stranger's
(measured: 27 of 27, beside a nonce none of 10). What was constant is drawn: length, way to ask, stream, tenants,
wording, depth, pause.

The drawn length comes last in a round, since an accepted request overwrites the pages that
the others would read (measured: boundary lengths first, with own frames, found a fully leaking server
in 100 of 100 runs; without frames, or longest first, in 20).
"""

from __future__ import annotations

from kvaudit.auditor.checks.canary.lengths import answered, failing
from kvaudit.auditor.checks.descriptor import ANY, Check

CHECK = Check(
    id="canary",
    title="Planted markers across tenants",
    why="The incident's answers were coherent text of other customers. A marker that only one tenant ever sent "
    "proves such a leak when another tenant receives it.",
    kind="active",
    order=8,
    tenants=2,
    required=True,
    gate=True,
    cadence="nightly",
    leak=frozenset({"critical", ""}),
    boundary=ANY,
    accumulates=True,
    bounds=True,
    replayable=True,
    shows="outcome",
    drawn=("matrix", "hits", "unknown_answers", "evidence", "accumulated"),
    failing_lengths=failing,
    answered_lengths=answered,
)
