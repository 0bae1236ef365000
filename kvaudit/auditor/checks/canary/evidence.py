"""What a canary run adds to the evidence of its build: clean trials, weighed by how likely a leak would have shown.

One run seldom proves enough on a busy deployment, so trials of thirty days add up (`stats.accumulated`). Their
dirtying belongs to the moment and is in the weight; surfacing is the model's, and is pooled over all runs. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvaudit.auditor.checks.canary.matrix import accepted, surfacing_of
from kvaudit.auditor.checks.canary.seen import Asked, CanarySeen
from kvaudit.auditor.checks.trials import void_share


def weighed(seen: CanarySeen) -> Iterator[tuple[Asked, float]]:
    """The clean trials, each with its dirtying c."""
    for one in accepted(seen):
        if one.trial.nonce is True and not one.trial.cramped:
            window = seen.windows.get(one.trial.repeat)
            yield one, seen.served.share(*window) if window is not None and not seen.serving.unsure else 0.0


def dirtying(seen: CanarySeen) -> float | None:
    """The mean c of the clean trials; None where it is not known."""
    if seen.serving.unsure or seen.served.blind:
        return None
    shares = [share for _, share in weighed(seen)]
    return sum(shares) / len(shares) if shares else None


def effective_trials(seen: CanarySeen) -> float:
    """Each clean trial with the chance that a leak would have been seen in it, by this run's own surfacing."""
    measured = surfacing_of(seen.asked)
    return sum(share * measured[one.mode, one.tail].at_least for one, share in weighed(seen))


def evidence_of(seen: CanarySeen, doubt: str) -> dict[str, Any]:
    """What `stats.accumulated` adds up. ``doubt``: why this run alone forbids a pass, "" where it may only be short."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for one, share in weighed(seen):
        groups.setdefault((one.trial.name, one.mode, one.tail), []).append(share)
    return {
        "build": seen.serving.build,
        "build_said": seen.serving.said,
        "where": seen.serving.where,
        "void_share": round(void_share(seen.trials), 4),
        "trials": [
            {
                "stratum": stratum,
                "mode": mode,
                "tail": tail,
                "replica": seen.serving.replica,
                "count": len(shares),
                "weight": round(sum(shares), 4),
            }
            for (stratum, mode, tail), shares in sorted(groups.items())
        ],
        "surfacing": [
            {"mode": mode, "tail": tail, "trials": one.trials, "surfaced": one.surfaced}
            for (mode, tail), one in surfacing_of(seen.asked).items()
        ],
        "hits": sum(one.verified for one in seen.sightings),
        "doubt": doubt,
    }
