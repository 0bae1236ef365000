"""Does prefix caching cross tenants?

Counts first: a tenant that repeats its own prefix must hit (else nothing can be seen), another tenant
that sends the same prefix must miss. Then time: cached prefixes are faster even where no count says so.
Then the tiers: a prefix that was evicted and comes back from a second tier may have lost its salt. Last,
a cache of whole responses, which is no KV cache but leaks all the same.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="prefix",
    title="Prefix cache isolation",
    why="A prefix cache shared between tenants tells one what the other sent, by count or by time; reports since 2025 "
    "show it at most providers, and salts that are dropped on the way.",
    kind="active",
    order=10,
    tenants=2,
    leak=frozenset({"critical"}),
    boundary=frozenset({"high"}),
    probed=False,
    packages=("numpy", "scipy"),
)
