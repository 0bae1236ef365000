"""Judges the arms and return visits of a run, and gives the counts that later runs are pooled with. Pure: no
clock, no network."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.checks.concurrency import counts
from kvaudit.auditor.checks.concurrency.counts import nonce_loss, visit_loss
from kvaudit.auditor.checks.concurrency.load import ARMS, CONTROLS, FULL, LEAST_REQUESTS, UNEQUAL
from kvaudit.auditor.checks.concurrency.seen import ConcurrencySeen, Sighting
from kvaudit.auditor.checks.trials import (
    VOID_SHARE,
    needed,
    nothing_learnt,
    result_builder,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.checks.ways import asked_as, ways_asked
from kvaudit.auditor.verdict import Result, Verdict

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

    result = result_builder("concurrency", measures, DOES_NOT_PROVE, seen.evidence)

    if seen.hits:
        return result(Verdict.FAIL, _hit_sentence(seen, seen.hits[0]), FIRST_AID, "critical")
    if (error := nothing_learnt(result, seen.trials, seen.sightings)) is not None:
        return error
    lost, lost_p = visit_loss(seen)
    if lost_p < ALPHA:
        after, asked = counts.total(one.after for one in seen.visits)
        return result(
            Verdict.FAIL,
            f"A session that came back after {counts.most_filler(seen):,} tokens of other requests found only "
            f"{after} of {asked} of its own facts; right after storing them, and in sessions stored at that moment, "
            f"{lost} of {counts.controls_asked(seen)} were missed (p = {lost_p:.1g}).",
            "Turn off the second tier or the snapshots that evicted sessions come back from, and run this again.",
            "high",
        )
    nonce_p = nonce_loss(seen)
    if nonce_p < ALPHA:
        bad, all_bad = counts.without_nonce(seen.trials, UNEQUAL)
        good, all_good = counts.without_nonce(seen.trials, CONTROLS)
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
    valid = counts.valid(seen.trials, UNEQUAL)
    if reason:
        return result(
            Verdict.INCONCLUSIVE,
            f"Not shown either way: {reason} {counts.valid(seen.trials, ARMS)} of {seen.planned} planned requests are "
            f"valid ({voids(counts.counted(seen.trials))}). This is not a pass.",
            needed(seen.stopped) if seen.stopped else "Remove the hindrance and run again, in a window.",
            warn=any(one.suspicious for one in seen.sightings),
        )
    return result(
        Verdict.PASS,
        f"{counts.ended(seen.trials)} requests of mixed lengths, up to {seen.workers} at once, {counts.cut(seen)} of "
        f"them cut off, in a pool {counts.least_peak(seen):.0%} full: no answer held another request's marker "
        f"({voids(counts.counted(seen.trials))}), and "
        f"{len(seen.visits)} sessions that had been pushed out of the pool found their own facts again. Fewer "
        f"than {counts.bound(seen, valid):.1%} of requests under such load are mixed up visibly (95 % confidence)."
        f"{asked_as(seen.trials)}",
        "Run again weekly in a window, and after every upgrade; runs with the same configuration add up.",
    )


def _why_not(seen: ConcurrencySeen) -> str:
    if seen.stopped:
        return unfinished(len(seen.trials), seen.planned, "requests", seen.stopped)
    if seen.planned < LEAST_REQUESTS:
        return f"the token ceiling allows {seen.planned} requests, and a pass needs {LEAST_REQUESTS}."
    if void_share(seen.trials) > VOID_SHARE:
        return "too many requests were void."
    given, asked = counts.with_nonce(seen.trials, CONTROLS)
    if not asked or given < LEAST_CONTROL * asked:
        return f"only {given} of {asked} answers of the control arms gave their nonce, so a lost one says nothing."
    if missed := seen.misses.why_no_pass:
        return missed
    if seen.own_markers < LEAST_SURFACING * seen.own_asked:
        return (
            f"only {seen.own_markers} of {seen.own_asked} answers named their own marker, so a swapped answer would "
            "seldom name the other's."
        )
    if (cut := counts.cut(seen)) < LEAST_CUT * seen.aborts_planned:
        return f"only {cut} of {seen.aborts_planned} requests were cut off before their answer was complete."
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
    found, asked = counts.total(control)
    if not asked or found < LEAST_CONTROL * asked:
        return f"sessions that stayed in the pool found {found} of {asked} of their facts: nothing is shown."
    found, asked = counts.total(one.after for one in seen.visits)
    if found < LEAST_CONTROL * asked:
        return f"sessions that came back found {found} of {asked} of their facts: not enough to tell."
    pool = seen.limits and (seen.limits.largest_pool or seen.limits.pool)
    if pool and any(one.filler_tokens <= pool for one in seen.visits):
        return "the fillers of a return visit did not push the pool past 100 %."
    return ""


def _overloaded(seen: ConcurrencySeen) -> bool:
    return seen.loop_looks >= 5 and seen.loop_late > OVERLOADED * seen.loop_looks


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
    unequal_lost, unequal = counts.without_nonce(seen.trials, UNEQUAL)
    control_lost, control = counts.without_nonce(seen.trials, CONTROLS)
    valid = counts.valid(seen.trials, UNEQUAL)
    visit_lost, visit_p = visit_loss(seen)
    return {
        "planned": seen.planned,
        "valid": counts.valid(seen.trials, ARMS),
        "valid_under_load": valid,  # pool this and hits_under_load over runs with the same fingerprint
        "hits_under_load": len(seen.hits),
        "void": sum(not one.outcome.valid for one in counts.counted(seen.trials)),
        "cancelled": counts.cut(seen),
        "cancelled_planned": seen.aborts_planned,
        "retried": seen.retried,
        "workers": seen.workers,
        "order": list(seen.order),
        "surfacing": round(seen.own_markers / seen.own_asked, 3) if seen.own_asked else 0.0,
        "surfacing_trials": seen.own_asked,
        "bound": round(counts.bound(seen, valid), 5) if not seen.hits else None,
        "confidence": 0.95,
        "nonce_lost": {"unequal": [unequal_lost, unequal], "controls": [control_lost, control]},
        "nonce_p": nonce_loss(seen),
        "ways": ways_asked(seen.trials),
        "misses": seen.misses.as_measure(),
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
    trials = counts.of_arms(seen.trials, (arm,))
    lost, judged = counts.without_nonce(trials, (arm,))
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
