"""Was the gate run after the last capacity change?

A capacity change (version, model, quantisation, parallelism, page size, context, or a pool that moved
by more than 2 % or across a limit) makes older evidence worthless. The gate set (pool, version,
rejection, canary) must have *completed* since, whatever its verdict.
"""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Check

CHECK = Check(
    id="drift",
    title="Gate after every capacity change",
    why="Pools and limits move with every change of capacity, and teams skip the gate after one.",
    kind="passive",
    order=3,
    required=True,
    cadence="hourly",
    probed=False,
)
