"""Says why a clean run proves less than a pass needs, and what brings the rest. Pure."""

from __future__ import annotations

import math

from kvaudit.auditor.checks.canary.evidence import dirtying, effective_trials
from kvaudit.auditor.checks.canary.matrix import surfacing_of, together
from kvaudit.auditor.checks.canary.seen import CanarySeen
from kvaudit.auditor.checks.trials import MORE_TOKENS

ENOUGH = 20.0
"""Effective trials that a build needs in thirty days: then fewer than 15 % of such requests leak."""

ALONE = 7.5
"""Effective trials with which a run passes by itself, as a week needs them: fewer than 40 % leak, and it says so."""

FULL = 60
"""Rounds of a run that the ceiling does not cut."""

LITTLE = 0.5

NIGHTLY = "nightly on the same build, or with kvaudit probe canary --state FILE each time"
QUALIFY = "kvaudit qualify --node URL before a replica takes traffic, when all that it serves is ours"


def why_thin(seen: CanarySeen) -> str:
    """The clause "... adds 6.2 effective trials, and 20 are needed", "" where a run has enough of its own."""
    found = effective_trials(seen)
    if found >= ALONE:
        return ""
    causes = _causes(seen)
    why = f" ({'; '.join(causes)})" if causes else ""
    return (
        f"the run adds {told(found)}, and {ENOUGH:.0f} are needed on this build{why}. {_until_enough(found)}"
    )


def still_needed(seen: CanarySeen) -> str:
    """What a run that passes by itself leaves open for its build."""
    found = effective_trials(seen)
    if found >= ENOUGH:
        return ""
    return f" It adds {told(found)}, of {ENOUGH:.0f} that this build needs in 30 days."


def told(effective: float) -> str:
    return f"{effective:.1f} effective trials" if effective >= 0.05 else "no effective trial"


def what_brings_more(seen: CanarySeen) -> str:
    """The commands that would decide it."""
    if seen.serving.unsure:
        return f"Name each process by an address of its own (kvaudit probe canary --node URL), or {QUALIFY}."
    if seen.served.blind or seen.served.pool is None:
        return (
            "Let the nodes show their metrics and pool (kvaudit probe pool says what is missing), then run "
            f"kvaudit probe canary again; or {QUALIFY}."
        )
    again = f"Run it again, since evidence of 30 days adds up: {NIGHTLY}; or {QUALIFY}."
    return f"{MORE_TOKENS} {again}" if seen.planned < FULL or seen.not_filled else again


def _until_enough(found: float) -> str:
    if found < 0.05:
        return "As it is, no number of nights brings them."
    nights = math.ceil((ENOUGH - found) / found)
    return f"About {nights} more {'night' if nights == 1 else 'nights'} at this budget, or kvaudit qualify, bring them."


def _causes(seen: CanarySeen) -> list[str]:
    causes = []
    if seen.serving.unsure:
        causes.append(seen.serving.unsure)
    elif seen.served.blind:
        causes.append("the engines' counters do not show how much of what they served was ours")
    elif seen.served.pool is None and not seen.served.last_freed_first:
        causes.append("how many tokens the pools hold is not known")
    elif missing := seen.served.missing():
        causes.append(
            f"{missing:,.0f} tokens are missing until every replica has served one pool since the run began, and "
            f"rounds before that count nothing{f': {seen.not_filled}' if seen.not_filled else ''}"
        )
    elif (share := dirtying(seen)) is not None and share < LITTLE:
        causes.append(f"only {share:.0%} of what a trial may have read was ours, the rest others' traffic")
    surfacing = together(surfacing_of(seen.asked))
    if surfacing.share < LITTLE:
        causes.append(
            f"stale text would have surfaced in only {surfacing.surfaced} of {surfacing.trials} answers that were "
            "asked for their phrase"
        )
    if seen.planned < FULL:
        causes.append(f"the token ceiling allows {seen.planned} of {FULL} rounds")
    return causes
