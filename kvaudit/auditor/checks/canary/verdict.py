"""Judges the rounds of a canary run, with the bound that a clean run may state. Pure: no clock, no network."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvaudit.auditor.checks.canary.design import SURFACING
from kvaudit.auditor.checks.canary.evidence import dirtying, effective_trials, evidence_of
from kvaudit.auditor.checks.canary.matrix import (
    Surfacing,
    accepted,
    rows,
    surfacing_of,
    together,
)
from kvaudit.auditor.checks.canary.seen import CanarySeen, Sighting
from kvaudit.auditor.checks.canary.sentences import asked_how, blind, fail_sentence, left_out
from kvaudit.auditor.checks.canary.thin import still_needed, told, what_brings_more, why_thin
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.trials import (
    GIVE_CONSENT,
    NO_CONSENT,
    VOID_SHARE,
    needed,
    nothing_learnt,
    result_builder,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.stats.bounds import effective_bound
from kvaudit.auditor.text.markers import as_measure
from kvaudit.auditor.verdict import Result, Verdict

LIVE_DAYS = 30
UNKNOWN = "one unknown replica behind the entry"

DOES_NOT_PROVE = (
    "It bounds leaks that reach the text of requests drawn like these: lengths of all strata, the ways to ask that are "
    "named, on this build and on whichever replica answered; together, not of each stratum alone. It says nothing of "
    "other routes, ranks or load, nor of leaks that stay invisible."
)
RUN_COHERENCE = (
    "Run kvaudit probe coherence at these lengths, which says whether a model forgets or reads others' pages."
)
RUN_REJECTION = "Run kvaudit probe rejection, which judges what was answered above the limit."
RUN_WHEN_QUIET = (
    "Run kvaudit probe canary again when the target answers, or kvaudit qualify on an idle replica."
)
RUN_AGAIN = "Run kvaudit probe canary again: four words in a row decide."
FIRST_AID = (
    "Stop serving lengths of {tokens:,} tokens and more now; quarantine the deployment; enlarge the prefill pool or "
    "set an edge limit; upgrade; then let both independent tests pass before it takes traffic again."
)


def judge_canary(seen: CanarySeen) -> Result:
    """The verdict of checks.md 4."""
    share = dirtying(seen)
    bound = effective_bound(effective_trials(seen))
    measures = _measures(seen, share, bound)

    result = result_builder("canary", measures, DOES_NOT_PROVE, seen.evidence)

    hits = sorted((one for one in seen.sightings if one.verified), key=lambda one: one.kind != "cross-tenant")
    if hits:
        return result(
            Verdict.FAIL,
            fail_sentence(seen, hits),
            FIRST_AID.format(tokens=min(one.length for one in hits)),
            "critical",
        )
    if (error := nothing_learnt(result, seen.trials, seen.sightings)) is not None:
        return error
    if seen.unhealthy:
        return result(
            Verdict.FAIL,
            f"The deployment is no longer healthy after the canary's requests: {seen.unhealthy}",
            "Restart it, and do not send prompts at the boundary again before the pool check passes.",
            "high",
        )
    valid = len(accepted(seen))
    if open_question := _open_question(seen):
        reason, next_step = open_question
        return result(
            Verdict.INCONCLUSIVE,
            f"Not shown either way: {reason} {valid} of {seen.planned} planned rounds are valid "
            f"({voids(seen.trials)}). This is not a pass.",
            next_step,
            warn=any(one.suspicious for one in seen.sightings) or any(one.wrong for one in seen.trials),
        )
    reservations = left_out(seen) + blind(seen)
    return result(
        Verdict.PASS,
        f"In {valid} valid rounds ({voids(seen.trials)}) no marker of another request appeared. With measured "
        f"surfacing {measures['surfacing']:.2f} and dirtying {share or 0:.2f} fewer than {bound:.1%} of requests drawn "
        f"like these leak (95 % confidence; {seen.scope or UNKNOWN}).{still_needed(seen)} "
        f"{asked_how(seen)}{reservations}",
        "Run again after every capacity change, and nightly.",
        warn=bool(reservations),
    )


def _open_question(seen: CanarySeen) -> tuple[str, str] | None:
    """Why a clean run is no pass, and what would decide it."""
    if any(one.differs for one in seen.misses.values()):
        return _doubt(seen)
    if seen.stopped:
        cut = unfinished(seen.rounds_done, seen.planned, "rounds", seen.stopped)
        return f"{cut} What was done adds {told(effective_trials(seen))}.", needed(seen.stopped)
    if seen.withheld:
        return NO_CONSENT, GIVE_CONSENT
    if void_share(seen.trials) > VOID_SHARE:
        return "too many trials were void.", RUN_WHEN_QUIET
    if (doubt := _doubt(seen))[0]:
        return doubt
    if thin := why_thin(seen):
        return thin, what_brings_more(seen)
    return None


def _doubt(seen: CanarySeen) -> tuple[str, str]:
    """What was seen that forbids a pass, however much is clean beside it; and what would decide it."""
    if missed := _missed(seen):
        return missed, RUN_COHERENCE
    if above := _unread_above(seen):
        return above, RUN_REJECTION
    if any(one.suspicious for one in seen.sightings):
        return "runs of three marker words appeared and did not come back in ten repeats.", RUN_AGAIN
    return "", ""


def _unread_above(seen: CanarySeen) -> str:
    """Answers where a refusal is due, that do not show that their prompt was read: often one token is all the room."""
    limit = seen.limits.first_rejected if seen.limits else None
    unread = [
        one
        for one in seen.trials
        if limit is not None
        and one.tokens >= limit
        and one.outcome is Outcome.ANSWERED
        and one.nonce is not True
    ]
    if not unread:
        return ""
    return (
        f"{len(unread)} prompts of {min(one.tokens for one in unread):,} tokens and more were answered although the "
        f"limit is {limit:,}, and nothing shows that they were read (run rejection)."
    )


def _missed(seen: CanarySeen) -> str:
    """Why answers that did not give what their prompt asked for forbid a pass, "" where they do not."""
    for (mode, tail), misses in sorted(seen.misses.items()):
        how = f"({mode}, asked for their {tail}; run coherence)."
        if misses.missed and not misses.controls:
            return (
                f"{misses.missed} of {misses.answers} answers did not give what their own prompt asked for, and no "
                f"short prompt was asked in the same way that they could be compared with {how}"
            )
        if (
            misses.control_lost
        ):  # this way finds nothing: its answers count nothing either, and the sentence says so
            continue
        if reason := misses.why_no_pass:
            return f"{reason.rstrip('.')} {how}"
    judged = [one for one in seen.trials if one.nonce is not None]
    if judged and sum(one.missed for one in judged) > len(judged) / 2:
        return "most answers did not give what their own prompt asked for, short ones neither."
    return ""


def _measures(seen: CanarySeen, share: float | None, bound: float) -> dict[str, Any]:
    limit = seen.limits.first_rejected if seen.limits else None
    answered = [one for one in seen.trials if one.outcome is Outcome.ANSWERED and one.name != SURFACING]
    found = surfacing_of(seen.asked)
    surfacing = together(found)
    return {
        "planned_rounds": seen.planned,
        "accepted_rounds": len(accepted(seen)),
        "accepted": sum(limit is not None and one.tokens < limit for one in answered),
        "accepted_above_limit": sum(limit is not None and one.tokens >= limit for one in answered),
        "refused": sum(one.outcome is Outcome.REFUSED for one in seen.trials),
        "without_nonce": sum(one.wrong for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "surfacing": round(surfacing.share, 3),
        "surfacing_trials": surfacing.trials,
        "tails": [_tail_shown(*key, one) for key, one in found.items()],
        "dirtying": None if share is None else round(share, 3),
        "effective_trials": round(effective_trials(seen), 2),
        "evidence": evidence_of(seen, _doubt(seen)[0]),
        "bound": round(bound, 5),
        "confidence": 0.95,
        "hits": [_shown(one) for one in seen.sightings if one.verified],
        "doubt": _doubt(seen)[0],
        "withheld": seen.withheld,
        "suspicious": sum(one.suspicious for one in seen.sightings),
        "decoys_met": sum(one.decoy for one in seen.sightings),
        "earlier_markers": seen.earlier,
        "left_out": dict(seen.left_out),
        "repeats_after_hit": seen.repeats,
        "hits_in_repeats": seen.repeat_hits,
        "matrix": rows(seen),
        "misses": [
            {"mode": mode, "tail": tail, **one.as_measure()}
            for (mode, tail), one in seen.misses.items()
            if one.missed
        ],
        "unknown_answers": [asdict(one) for one in seen.unknown],
        "untested": list(seen.untested),
        "idle_seconds": round(seen.idle, 1),
        "scope": seen.scope or UNKNOWN,
        "live_days": LIVE_DAYS,
        "live_markers": [as_measure(marker) for marker in (*seen.planted, *seen.decoys)],
    }


def _tail_shown(mode: str, tail: str, one: Surfacing) -> dict[str, Any]:
    """What other nights add up: answers of one way and tail, and those that gave their phrase."""
    return {
        "mode": mode,
        "tail": tail,
        "trials": one.trials,
        "surfaced": one.surfaced,
        "at_least": round(one.at_least, 3),
    }


def _shown(hit: Sighting) -> dict[str, Any]:
    return {
        "kind": hit.kind,
        "planted_by": hit.planted_by,
        "read_by": hit.reader,
        "words": " ".join(hit.words),
        "run": hit.run,
        "tokens": hit.length,
        "cell": hit.cell,
        "round": hit.round,
        "route": hit.route,
        "tail": hit.tail,
        "page_ordinals": list(hit.ordinals),
        "page_ordinals_are": "approximate",
        "page_ordinals_unknown": hit.no_ordinals,
        "planted_in_an_earlier_run": hit.earlier_run,
    }
