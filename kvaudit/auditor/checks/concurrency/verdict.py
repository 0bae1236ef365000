"""From the arms and return visits of a run to a verdict, with the counts that later runs are pooled with. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kvaudit.auditor.checks.concurrency.load import ARMS, CONTROLS, FULL, LEAST_REQUESTS, UNEQUAL
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.trials import (
    VOID_SHARE,
    Trial,
    denied,
    needed,
    saying,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.stats.bounds import fisher_greater, upper_bound
from kvaudit.auditor.verdict import Result, Verdict

if TYPE_CHECKING:
    from kvaudit.auditor.checks.concurrency.arms import ConcurrencySeen, Sighting

ALPHA = 0.001
LEAST_CONTROL = 0.8
"""Share of control answers that must give their nonce, or a lost one says nothing."""

LEAST_SURFACING = 0.5
"""Share of answers that must name their own marker, or a swapped one would not name the other's."""

LEAST_CUT = 0.25
"""Share of the planned aborts that must have come in time: before the answer was complete."""

OVERLOADED = 0.2

DOES_NOT_PROVE = (
    "It bounds races between requests like these, at this load, on this build and on whichever replicas answered. "
    "Requests of one burst share their circumstances, so the bound is for this mixture, not for each moment. It says "
    "nothing of rarer triggers (adapters, images, failing nodes), of other lengths, nor of races that leave the text "
    "as it is; a prefix that another tenant may use is the `prefix` check's."
)
FIRST_AID = (
    "Quarantine the deployment; answers are mixed up between requests that overlap. Turn off what reuses pages or "
    "rows early (overlap scheduling, asynchronous transfer, offloading), upgrade, and run this again before it "
    "takes traffic."
)


def judge_concurrency(seen: ConcurrencySeen) -> Result:
    """The verdict of checks.md 9."""
    measures = _measures(seen)

    result = saying("concurrency", measures, DOES_NOT_PROVE, seen.evidence)

    if seen.hits:
        return result(Verdict.FAIL, _hit_sentence(seen, seen.hits[0]), FIRST_AID, "critical")
    if any(one.decoy for one in seen.sightings):
        return result(
            Verdict.ERROR,
            "A marker that was never sent to anybody was found in an answer: the matcher or its word list is at fault, "
            "and nothing was learnt about the target.",
            "Report this with the evidence; do not trust other results of this version that search for markers.",
        )
    if refusal := denied(seen.trials):
        return result(
            Verdict.ERROR,
            f"The entry refused the key of tenant {refusal.tenant} ({refusal.status}): nothing was learnt.",
            "Check both tenants' keys and run again.",
        )
    lost, lost_p = visit_loss(seen)
    if lost_p < ALPHA:
        after, asked = _sum(one.after for one in seen.visits)
        return result(
            Verdict.FAIL,
            f"A session that came back after {_fillers(seen):,} tokens of other requests found only {after} of "
            f"{asked} of its own facts; right after storing them, and in sessions stored at that moment, "
            f"{lost} of {_controls_asked(seen)} were missed (p = {lost_p:.1g}).",
            "Turn off the second tier or the snapshots that evicted sessions come back from, and run this again.",
            "high",
        )
    nonce_p = nonce_loss(seen)
    if nonce_p < ALPHA:
        (bad, all_bad), (good, all_good) = _lost(seen.trials, UNEQUAL), _lost(seen.trials, CONTROLS)
        return result(
            Verdict.FAIL,
            f"Under load {bad} of {all_bad} answers did not hold the word that their own prompt asked for, against "
            f"{good} of {all_good} in the control arms (p = {nonce_p:.1g}): requests do not read their own prompt.",
            FIRST_AID,
            "high",
        )
    if _overloaded(seen):
        return result(
            Verdict.ERROR,
            f"The auditing machine was overloaded: {seen.loop_late} of {seen.loop_looks} of its own timers were more "
            "than 250 ms late, so the load was not the planned one.",
            "Run this from a machine with free processor time.",
        )
    reason = _why_not(seen)
    valid = _valid(seen.trials, UNEQUAL)
    if reason:
        return result(
            Verdict.INCONCLUSIVE,
            f"Not shown either way: {reason} {sum(_valid(seen.trials, (arm,)) for arm in ARMS)} of {seen.planned} "
            f"planned requests are valid ({voids(_counted(seen.trials))}). This is not a pass.",
            needed(seen.stopped) if seen.stopped else "Remove the hindrance and run again, in a window.",
            warn=any(one.suspicious for one in seen.sightings),
        )
    return result(
        Verdict.PASS,
        f"{_ended(seen.trials)} requests of mixed lengths, up to {seen.workers} at once, {_cut(seen)} of them cut "
        f"off, in a pool {_peak(seen):.0%} full: no answer held another request's marker "
        f"({voids(_counted(seen.trials))}), and "
        f"{len(seen.visits)} sessions that had been pushed out of the pool found their own facts again. Fewer "
        f"than {_bound(seen, valid):.1%} of requests under such load are mixed up visibly (95 % confidence).",
        "Run again weekly in a window, and after every upgrade; runs with the same configuration add up.",
    )


def nonce_loss(seen: ConcurrencySeen) -> float:
    """Fisher's one-sided p that the unequal arms, pooled, lose their nonce more often than the controls."""
    (bad, all_bad), (good, all_good) = _lost(seen.trials, UNEQUAL), _lost(seen.trials, CONTROLS)
    return fisher_greater(bad, all_bad, good, all_good)


def visit_loss(seen: ConcurrencySeen) -> tuple[int, float]:
    """Facts missed by the controls of all visits, and Fisher's p that returning sessions miss more."""
    found, asked = _sum(one.after for one in seen.visits)
    control = [pair for one in seen.visits for pair in (one.before, one.fresh)]
    known, all_known = _sum(control)
    return all_known - known, fisher_greater(asked - found, asked, all_known - known, all_known)


def _why_not(seen: ConcurrencySeen) -> str:
    if seen.stopped:
        return unfinished(len(seen.trials), seen.planned, "requests", seen.stopped)
    if seen.planned < LEAST_REQUESTS:
        return f"the token ceiling allows {seen.planned} requests, and a pass needs {LEAST_REQUESTS}."
    if void_share(seen.trials) > VOID_SHARE:
        return "too many requests were void."
    given, asked = _found(seen.trials, CONTROLS)
    if not asked or given < LEAST_CONTROL * asked:
        return f"only {given} of {asked} answers of the control arms gave their nonce, so a lost one says nothing."
    if seen.own_markers < LEAST_SURFACING * seen.own_asked:
        return (
            f"only {seen.own_markers} of {seen.own_asked} answers named their own marker, so a swapped answer would "
            "seldom name the other's."
        )
    if _cut(seen) < LEAST_CUT * seen.aborts_planned:
        return f"only {_cut(seen)} of {seen.aborts_planned} requests were cut off before their answer was complete."
    if reason := _load(seen):
        return reason
    if any(one.suspicious for one in seen.sightings):
        return "runs of three marker words of other requests appeared."
    if seen.no_visit:
        return f"{seen.no_visit}."
    return _visits(seen)


def _load(seen: ConcurrencySeen) -> str:
    """Why the pool was not full enough for its pages to be reused at once; "" when it was."""
    for arm in UNEQUAL:
        use = seen.use.get(arm)
        peak = use.peak if use is not None else None
        if peak is None:
            return f"the use of the pool could not be read in the arm {arm}."
        if peak < FULL:
            return f"the pool was at most {peak:.0%} full in the arm {arm}, and {FULL:.0%} are needed."
    return ""


def _visits(seen: ConcurrencySeen) -> str:
    if len(seen.visits) < seen.visits_planned:
        return f"{len(seen.visits)} of {seen.visits_planned} return visits came to their end."
    control = [pair for one in seen.visits for pair in (one.before, one.fresh)]
    found, asked = _sum(control)
    if not asked or found < LEAST_CONTROL * asked:
        return f"sessions that stayed in the pool found {found} of {asked} of their facts: nothing is shown."
    found, asked = _sum(one.after for one in seen.visits)
    if found < LEAST_CONTROL * asked:
        return f"sessions that came back found {found} of {asked} of their facts: not enough to tell."
    pool = seen.limits and (seen.limits.largest_pool or seen.limits.pool)
    if pool and any(one.filler_tokens <= pool for one in seen.visits):
        return "the fillers of a return visit did not push the pool past 100 %."
    return ""


def _overloaded(seen: ConcurrencySeen) -> bool:
    return seen.loop_looks >= 5 and seen.loop_late > OVERLOADED * seen.loop_looks


def _of(trials: Iterable[Trial], arms: Iterable[str]) -> list[Trial]:
    wanted = set(arms)
    return [one for one in trials if one.name in wanted]


def _counted(trials: Iterable[Trial]) -> list[Trial]:
    return [one for one in trials if one.outcome is not Outcome.CANCELLED]


def _valid(trials: Iterable[Trial], arms: Iterable[str]) -> int:
    return sum(one.outcome.valid for one in _of(trials, arms))


def _ended(trials: Iterable[Trial]) -> int:
    """Answered or cut off: whatever ran beside the others in the unequal arms."""
    return sum(one.outcome.valid or one.outcome is Outcome.CANCELLED for one in _of(trials, UNEQUAL))


def _lost(trials: Iterable[Trial], arms: Iterable[str]) -> tuple[int, int]:
    """(answers without their nonce, answers that could be judged)."""
    judged = [one for one in _of(trials, arms) if one.nonce is not None]
    return sum(one.nonce is False for one in judged), len(judged)


def _found(trials: Iterable[Trial], arms: Iterable[str]) -> tuple[int, int]:
    lost, judged = _lost(trials, arms)
    return judged - lost, judged


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    listed = list(pairs)
    return sum(found for found, _ in listed), sum(asked for _, asked in listed)


def _controls_asked(seen: ConcurrencySeen) -> int:
    return _sum(pair for one in seen.visits for pair in (one.before, one.fresh))[1]


def _fillers(seen: ConcurrencySeen) -> int:
    return max((one.filler_tokens for one in seen.visits), default=0)


def _cut(seen: ConcurrencySeen) -> int:
    return sum(one.outcome is Outcome.CANCELLED for one in seen.trials)


def _peak(seen: ConcurrencySeen) -> float:
    peaks = [use.peak for arm, use in seen.use.items() if arm in UNEQUAL and use.peak is not None]
    return min(peaks, default=0.0)


def _bound(seen: ConcurrencySeen, valid: int) -> float:
    """Upper 95 % bound on visible mix-ups per answered request, corrected for the share of answers
    that name their own marker."""
    surfacing = seen.own_markers / seen.own_asked if seen.own_asked else 0.0
    return min(1.0, upper_bound(0, valid) / surfacing) if surfacing else 1.0


def _hit_sentence(seen: ConcurrencySeen, hit: Sighting) -> str:
    whose = (
        f"Text of tenant {hit.planted_by} appeared in tenant {hit.reader}'s answer"
        if hit.kind == "cross-tenant"
        else f"Text of another request of tenant {hit.reader} appeared in an answer of the same tenant"
    )
    return (
        f"{whose} under load (arm {hit.arm}): {hit.run} of 6 marker words in a row, planted in a prompt of "
        f"{hit.planted_tokens:,} tokens, read in the answer to one of {hit.tokens:,} (request {len(seen.trials)})."
    )


def _measures(seen: ConcurrencySeen) -> dict[str, Any]:
    unequal_lost, unequal = _lost(seen.trials, UNEQUAL)
    control_lost, control = _lost(seen.trials, CONTROLS)
    valid = _valid(seen.trials, UNEQUAL)
    visit_lost, visit_p = visit_loss(seen)
    return {
        "planned": seen.planned,
        "valid": sum(_valid(seen.trials, (arm,)) for arm in ARMS),
        "valid_under_load": valid,  # pool this and hits_under_load over runs with the same fingerprint
        "hits_under_load": len(seen.hits),
        "void": sum(not one.outcome.valid for one in _counted(seen.trials)),
        "cancelled": _cut(seen),
        "cancelled_planned": seen.aborts_planned,
        "retried": seen.retried,
        "workers": seen.workers,
        "order": list(seen.order),
        "surfacing": round(seen.own_markers / seen.own_asked, 3) if seen.own_asked else 0.0,
        "surfacing_trials": seen.own_asked,
        "bound": round(_bound(seen, valid), 5) if not seen.hits else None,
        "confidence": 0.95,
        "nonce_lost": {"unequal": [unequal_lost, unequal], "controls": [control_lost, control]},
        "nonce_p": nonce_loss(seen),
        "hits": [_shown(one) for one in seen.hits],
        "suspicious": sum(one.suspicious for one in seen.sightings),
        "decoys_met": sum(one.decoy for one in seen.sightings),
        "arms": [_arm(seen, arm) for arm in ARMS],
        "visits": [_visit(one) for one in seen.visits],
        "visit_controls_lost": visit_lost,
        "visit_p": visit_p,
        "late_timers": [seen.loop_late, seen.loop_looks],
        "scope": "whichever replicas the entry chose",
    }


def _arm(seen: ConcurrencySeen, arm: str) -> dict[str, Any]:
    trials = _of(seen.trials, (arm,))
    lost, judged = _lost(trials, (arm,))
    use = seen.use.get(arm)
    outcomes: dict[str, int] = {}
    for one in trials:
        outcomes[one.outcome.value] = outcomes.get(one.outcome.value, 0) + 1
    peak = use.peak if use else None
    return {
        "arm": arm,
        "outcomes": outcomes,
        "nonce_lost": [lost, judged],
        "pool_peak": None if peak is None else round(peak, 3),
        "looks": use.looks if use else 0,
    }


def _visit(one: Any) -> dict[str, Any]:
    return {
        "number": one.number,
        "before": list(one.before),
        "after": list(one.after),
        "fresh": list(one.fresh),
        "filler_tokens": one.filler_tokens,
        "cached_tokens": one.cached,
    }


def _shown(hit: Sighting) -> dict[str, Any]:
    return {
        "kind": hit.kind,
        "planted_by": hit.planted_by,
        "read_by": hit.reader,
        "words": " ".join(hit.words),
        "run": hit.run,
        "tokens": hit.tokens,
        "planted_tokens": hit.planted_tokens,
        "arm": hit.arm,
    }
