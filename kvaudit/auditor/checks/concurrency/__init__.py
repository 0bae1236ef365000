"""Do requests that overlap stay apart?

Every request is victim and attacker at once: numbered frames of its own marker, its own nonce asked at
the end. Under mixed lengths, requests cut off in mid-flight and retried, and a full pool, no answer may
hold another request's marker, and nonces must not be lost more often than in the two control arms
(one at a time; all of one length). Then the return visit: a session that was pushed out of the pool
comes back and must find its own facts.

What it does not look for: a cache that another tenant may *use*. Under `tier_salt_dropped` both tenants
are served right text, only too cheaply; counts and times show that, and they are asked by `prefix`.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="concurrency",
    title="Races under load",
    why="Rows, pages and snapshots that are reused too early mix up requests only while they overlap; engines "
    "were reported to swap 8 of 100 answers of unequal length, and none in sequence.",
    kind="active",
    order=11,
    tenants=2,
    leak=frozenset({"critical"}),
    boundary=frozenset({"high"}),
    opt_in=True,
    probed=False,
    drawn=("hits",),
)
