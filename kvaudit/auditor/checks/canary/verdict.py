"""Judges the rounds of a canary run, with the bound that a clean run may state. Pure: no clock, no network."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.checks.canary.seen import CanarySeen, Sighting
from kvaudit.auditor.checks.evidence_source import WITHOUT_NONCE
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.trials import (
    GIVE_CONSENT,
    MORE_TOKENS,
    NO_CONSENT,
    VOID_SHARE,
    needed,
    nothing_learnt,
    result_builder,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.stats.bounds import interval, leak_bound
from kvaudit.auditor.text.markers import as_measure
from kvaudit.auditor.verdict import Result, Verdict

LEAST_SURFACING = 0.5
LEAST_DIRTYING = 0.5
LEAST_ROUNDS = 20
LIVE_DAYS = 30
UNKNOWN = "one unknown replica behind the entry"

DOES_NOT_PROVE = (
    "It bounds leaks that reach the text of requests which read pages like ours, at these lengths, on this build and "
    "on whichever replica answered. It says nothing of other lengths, ranks or load, nor of leaks that stay invisible."
)
FIRST_AID = (
    "Stop serving lengths of {tokens:,} tokens and more now; quarantine the deployment; enlarge the prefill pool or "
    "set an edge limit; upgrade; then let both independent tests pass before it takes traffic again."
)


def dirtying(seen: CanarySeen) -> float | None:
    """c: own frame tokens over everything the engine served since the rounds began; None = unknown."""
    if seen.served_tokens is None or seen.own_tokens <= 0:
        return None
    return min(1.0, seen.own_tokens / max(seen.served_tokens, float(seen.own_tokens)))


def judge_canary(seen: CanarySeen) -> Result:
    """The verdict of checks.md 4."""
    accepted = _accepted_rounds(seen)
    surfacing = seen.surfaced / seen.surfacing_trials if seen.surfacing_trials else 0.0
    share = dirtying(seen)
    bound = leak_bound(accepted, surfacing, share or 0.0)
    measures = _measures(seen, accepted, surfacing, share, bound)

    result = result_builder("canary", measures, DOES_NOT_PROVE, seen.evidence)

    hits = sorted((one for one in seen.sightings if one.verified), key=lambda one: one.kind != "cross-tenant")
    if hits:
        return result(
            Verdict.FAIL,
            _fail_sentence(seen, hits),
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
    reason = _why_not(seen, accepted, surfacing, share)
    if reason:
        return result(
            Verdict.INCONCLUSIVE,
            f"Not shown either way: {reason} {accepted} of {seen.planned} planned rounds are valid "
            f"({voids(seen.trials)}). This is not a pass.",
            GIVE_CONSENT
            if seen.withheld
            else needed(seen.stopped)
            if seen.stopped
            else MORE_TOKENS
            if seen.planned < LEAST_ROUNDS
            else "Remove the hindrance and run again.",
            warn=any(one.suspicious for one in seen.sightings) or _missed(seen) > 0,
        )
    left_out = ""
    if seen.left_out:
        names = ", ".join(seen.left_out)
        left_out = f" Not sent after two rounds, since the server failed instead of refusing: {names}."
    return result(
        Verdict.PASS,
        f"In {accepted} valid rounds ({voids(seen.trials)}) no marker of another request appeared. With measured "
        f"surfacing {surfacing:.2f} and dirtying {share:.2f} fewer than {bound:.1%} of accepted requests that read "
        f"pages like ours leak (95 % confidence; {seen.scope or UNKNOWN}).{left_out}",
        "Run again after every capacity change, and nightly.",
        warn=bool(left_out),
    )


def _why_not(seen: CanarySeen, accepted: int, surfacing: float, share: float | None) -> str:
    if seen.stopped:
        return unfinished(seen.rounds_done, seen.planned, "rounds", seen.stopped)
    if seen.withheld:
        return NO_CONSENT
    if seen.planned < LEAST_ROUNDS:
        return f"the token ceiling allows {seen.planned} rounds, and a pass needs {LEAST_ROUNDS}."
    if void_share(seen.trials) > VOID_SHARE:
        return "too many trials were void."
    if accepted < min(LEAST_ROUNDS, seen.planned):
        return "too few rounds were accepted and answered."
    if (missed := _missed(seen)) > VOID_SHARE:
        return (
            f"{missed:.0%} of the accepted requests came back without their own nonce: whatever they read, it was not "
            "shown to be theirs (run coherence)."
        )
    if surfacing < LEAST_SURFACING:
        return f"stale text would have surfaced in only {seen.surfaced} of {seen.surfacing_trials} control answers."
    if share is None:
        return "the engine's counters do not say how much of the pool our markers covered."
    if share < LEAST_DIRTYING:
        return f"only {share:.0%} of the tokens served meanwhile were ours, so others' pages were likelier to be read."
    if any(one.suspicious for one in seen.sightings):
        return "runs of three marker words appeared and did not come back in ten repeats."
    return ""


def _missed(seen: CanarySeen) -> float:
    """Share of answered requests, surfacing aside, that did not give their own nonce."""
    judged = [one for one in seen.trials if one.nonce is not None and one.outcome is Outcome.ANSWERED]
    return sum(one.wrong for one in judged) / len(judged) if judged else 0.0


def _accepted_rounds(seen: CanarySeen) -> int:
    """Rounds whose longest accepted request was answered: requests of one burst are not independent."""
    return len(
        {one.repeat for one in seen.trials if one.name == "longest" and one.outcome is Outcome.ANSWERED}
    )


def _fail_sentence(seen: CanarySeen, hits: list[Sighting]) -> str:
    first = hits[0]
    whose = (
        f"Text planted by tenant {first.planted_by} appeared in tenant {first.reader}'s answer"
        if first.kind == "cross-tenant"
        else f"Text of an earlier request of tenant {first.reader} appeared in a later answer of the same tenant"
    )
    rate = ""
    if seen.repeats:
        low, high = interval(seen.repeat_hits, seen.repeats)
        rate = (
            f" Repeated {seen.repeats} times, it happened {seen.repeat_hits} times ({low:.0%} to {high:.0%})."
        )
    pages = f", from about page {_listed(first.ordinals)} of it" if first.ordinals else ""
    since = " It was planted in an earlier run." if first.earlier_run else ""
    told = f"{whose} to a prompt of {first.length:,} tokens: {first.run} of 6 marker words in a row{pages}."
    return f"{told}{since}{rate}"


def _listed(ordinals: tuple[int, ...]) -> str:
    return ", ".join(str(ordinal) for ordinal in ordinals[:4]) + (" and more" if len(ordinals) > 4 else "")


def _measures(
    seen: CanarySeen, accepted: int, surfacing: float, share: float | None, bound: float
) -> dict[str, Any]:
    limit = seen.limits.first_rejected if seen.limits else None
    answered = [one for one in seen.trials if one.outcome is Outcome.ANSWERED and one.name != "surfacing"]
    return {
        "planned_rounds": seen.planned,
        "accepted_rounds": accepted,
        "accepted": sum(limit is not None and one.tokens < limit for one in answered),
        "accepted_above_limit": sum(limit is not None and one.tokens >= limit for one in answered),
        "refused": sum(one.outcome is Outcome.REFUSED for one in seen.trials),
        "without_nonce": sum(one.wrong for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "surfacing": round(surfacing, 3),
        "surfacing_trials": seen.surfacing_trials,
        "dirtying": None if share is None else round(share, 3),
        "bound": round(bound, 5),
        "confidence": 0.95,
        "hits": [_shown(one) for one in seen.sightings if one.verified],
        "suspicious": sum(one.suspicious for one in seen.sightings),
        "decoys_met": sum(one.decoy for one in seen.sightings),
        "earlier_markers": seen.earlier,
        "left_out": dict(seen.left_out),
        "repeats_after_hit": seen.repeats,
        "hits_in_repeats": seen.repeat_hits,
        "matrix": _matrix(seen),
        "scope": seen.scope or UNKNOWN,
        "live_days": LIVE_DAYS,
        "live_markers": [as_measure(marker) for marker in (*seen.planted, *seen.decoys)],
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
        "page_ordinals": list(hit.ordinals),
        "page_ordinals_are": "approximate",
        "page_ordinals_unknown": hit.no_ordinals,
        "planted_in_an_earlier_run": hit.earlier_run,
    }


def _matrix(seen: CanarySeen) -> list[dict[str, Any]]:
    """Per cell: how its requests ended, for the page's matrix of lengths and rounds. ``rounds`` holds one
    word a round (None = not asked), the worst where a suspicion was repeated: an `Outcome` or "without nonce"."""
    rows: dict[str, dict[str, Any]] = {}
    for one in seen.trials:
        if one.name == "surfacing":
            continue
        row = rows.setdefault(
            one.name, {"cell": one.name, "tokens": one.tokens, "outcomes": {}, "hits": 0, "rounds": []}
        )
        row["outcomes"][one.outcome.value] = row["outcomes"].get(one.outcome.value, 0) + 1
        by_round = row["rounds"]
        by_round.extend([None] * (one.repeat + 1 - len(by_round)))
        if by_round[one.repeat] is None or one.wrong:
            by_round[one.repeat] = WITHOUT_NONCE if one.wrong else one.outcome.value
    for hit in seen.sightings:
        if hit.verified and hit.cell in rows:
            rows[hit.cell]["hits"] += 1
    return list(rows.values())
