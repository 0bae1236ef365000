"""Did the model answer from its own prompt?

A prompt holds ten facts at five depths and asks for one of them, or for the nonce at its very end. The
questions end in the beginning of the sentence that answers them, so base models complete them too.
A model that finds neither its nonce nor more than two of ten facts, twice over, did not read what was
sent. Everything between that and the baseline is a weak model as likely as a leak: not shown.
"""

from __future__ import annotations

from kvaudit.auditor.checks.coherence.lengths import failing
from kvaudit.auditor.checks.descriptor import ANY, Check

CHECK = Check(
    id="coherence",
    title="Answers from the own prompt",
    why="When pages of another request are attended to, the model cannot know what its own prompt said. This shows "
    "even where no marker of ours happens to lie in the pages that leak.",
    kind="active",
    order=7,
    tenants=1,
    required=True,
    cadence="nightly",
    leak=frozenset({"critical"}),
    boundary=ANY,
    failing_lengths=failing,
)
