"""Judges counts and times of the prefix check's arms. Pure: no clock, no network."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kvaudit.auditor.checks.prefix.contents import FAIL as GARBLED
from kvaudit.auditor.checks.prefix.contents import OPEN as DOUBTFUL
from kvaudit.auditor.checks.prefix.contents import Recalled, recalls
from kvaudit.auditor.checks.prefix.responses import Twins, shared
from kvaudit.auditor.checks.trials import (
    VOID_SHARE,
    Trial,
    needed,
    no_longer_healthy,
    nothing_learnt,
    result_builder,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.engines import CACHED_TOKENS_FLAGS
from kvaudit.auditor.verdict import Evidence, Result, Verdict

ALPHA = 5e-7  # per look, two looks
LEAST_GAIN = 0.05
PARTS = 5
"""Counts, contents, tiers, responses and times."""

DRIFT = 1e-3  # a null arm below this is no null
DRIFTED = (
    "Two halves of the same timing arm differ: the target drifted meanwhile and times cannot be compared."
)

DOES_NOT_PROVE = (
    "It covers these prefixes, this replica and the tiers that were filled. A cache that is keyed right can still be "
    "overwritten or read stale, which canary and rejection look for; and a client may choose its own salt."
)
MEND = "Have the gateway set a salt per tenant, over what clients send, on every cache tier; or turn the cache off."


@dataclass(frozen=True, slots=True)
class Cached:
    """Cached tokens that one request reported; None = not reported."""

    arm: str  # own, cross, stolen salt, tier own, tier cross
    repeat: int
    cached: int | None
    tokens: int
    tenant: str = ""  # who asked, where it was another than the arm's usual one


@dataclass(slots=True)
class PrefixSeen:
    """``hits``, ``misses``, ``own_hits``, ``nulls`` are first-token seconds of the timing arms."""

    tenants: tuple[str, ...] = ()
    tolerance: int = 64  # tokens: a page, and what the target puts before every prompt
    recalled: list[Recalled] = field(default_factory=list)
    twins: list[Twins] = field(default_factory=list)
    counts: list[Cached] = field(default_factory=list)
    hits: list[float] = field(default_factory=list)
    misses: list[float] = field(default_factory=list)
    own_hits: list[float] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    tier_asked: bool = False
    equal_answers: int = 0
    compared_answers: int = 0
    drawn_again: int = 0  # the same lots although no cached response could serve them
    entry_sets_salts: bool = False
    salted: bool = False
    parts: int = 0  # of `PARTS`, done
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    unaskable: str = ""
    unhealthy: str = ""


def judge_prefix(seen: PrefixSeen) -> Result:
    """The verdict of checks.md 8."""
    measures = _measures(seen)

    result = result_builder("prefix", measures, DOES_NOT_PROVE, seen.evidence)

    if (error := nothing_learnt(result, seen.trials)) is not None:
        return error
    a, b = seen.tenants[0], seen.tenants[1]
    for arm, where in (
        ("cross", ""),
        ("tier cross", " after it had been evicted and came back from a second tier"),
    ):
        found = _over(seen, arm)
        if len(found) >= 2:
            reader = next((one.tenant for one in seen.counts if one.arm == arm and _hit(seen, one)), "") or b
            return result(
                Verdict.FAIL,
                f"Tenant {reader} was served {max(found):,} cached tokens of a prefix that only tenant {a} had "
                f"sent{where} ({len(found)} of {_asked(seen, arm)} times): the prefix cache crosses tenants.",
                MEND,
                "high",
            )
    if seen.compared_answers >= 3 and seen.equal_answers == seen.compared_answers and not seen.drawn_again:
        return result(
            Verdict.FAIL,
            f"Two tenants received byte-equal answers to a draw of lots, {seen.equal_answers} of "
            f"{seen.compared_answers} times: a response cache in front of the engine is shared between keys.",
            "Key the gateway's response cache by tenant, or turn it off.",
            "high",
        )
    if told := shared(seen.twins):
        return result(
            Verdict.FAIL,
            f"{told}: a response cache in front of the engine is shared between keys.",
            "Key the gateway's response cache by tenant, or turn it off.",
            "high",
        )
    worst = next(iter(recalls(seen.recalled)), None)
    if worst is not None and worst.p < GARBLED:
        return result(
            Verdict.FAIL,
            f"{worst.sentence}: a hit does not hold what was stored.",
            "Turn the prefix cache, or its second tier, off, and report it upstream with these numbers.",
            "high",
        )
    stolen = _over(seen, "stolen salt")
    if stolen and seen.entry_sets_salts:
        return result(
            Verdict.FAIL,
            f"Tenant {b} reached tenant {a}'s cached prefix by sending {a}'s salt, through an entry that is "
            "declared to set salts itself.",
            "Have the gateway overwrite the salt that clients send.",
            "high",
        )
    timing = _timing(seen, measures)
    if timing == "drift":
        return result(
            Verdict.ERROR,
            DRIFTED,
            "Measure in a quieter window.",
        )
    if timing == "shared":
        return result(
            Verdict.FAIL,
            f"Tenant {b} is answered faster on prefixes that tenant {a} sent before than on fresh ones "
            f"(p = {measures['timing']['p']:.1e}, {measures['timing']['median_gain']:.0%} of the median): the cache is "
            "shared although no count says so.",
            MEND,
            "medium",
        )
    if seen.unhealthy:
        return no_longer_healthy(result, "cached prefixes were asked", seen.unhealthy)
    if seen.stopped:
        said = unfinished(
            seen.parts, PARTS, "parts (counts, contents, tiers, responses, times)", seen.stopped
        )
        return result(Verdict.INCONCLUSIVE, f"Not asked to the end: {said}", needed(seen.stopped))
    if void_share(seen.trials) > VOID_SHARE:
        return result(
            Verdict.INCONCLUSIVE, f"Too many trials were void ({voids(seen.trials)}).", "Run again."
        )
    for recall in recalls(seen.recalled):
        if recall.p < DOUBTFUL or recall.excessive:
            return result(
                Verdict.INCONCLUSIVE,
                f"{recall.sentence}: too few to call it damage, too many for none.",
                "Run it again; open the sealed answers of the texts that came back (run page, Evidence).",
                warn=True,
            )
    own_hits, counted = (
        _over(seen, "own"),
        [one for one in seen.counts if one.arm == "own" and one.cached is not None],
    )
    if len(own_hits) < 2 and timing != "control":
        why = (
            "cached tokens are not reported"
            if not counted
            else "a tenant's own repeated prefix did not hit either"
        )
        return result(
            Verdict.INCONCLUSIVE,
            f"The cache cannot be seen: {why}, and no time shows it. Silence across tenants means nothing then.",
            f"Report cached tokens ({', '.join(CACHED_TOKENS_FLAGS.values())}), or attest that it is off.",
        )
    if _over(seen, "cross") or _over(seen, "tier cross"):
        return result(
            Verdict.INCONCLUSIVE,
            "One cross-tenant request reported cached tokens and the others did not: not shown either way.",
            "Run again.",
            warn=True,
        )
    warning = (
        " A salt protects only if the gateway sets it: any tenant that sends another's salt hits."
        if stolen
        else ""
    )
    told = (
        f"by count and by time ({len(seen.hits)} timed pairs)"
        if "timing" in measures
        else f"by count; {len(seen.hits)} timed pairs are too few to say the same of times"
    )
    hits = sum(one.asked for one in recalls(seen.recalled))
    contents = f" {hits} questions to texts out of the cache were answered from them." if hits else ""
    tiers = "" if seen.tier_asked else " Tiers beyond the pool were not filled."
    return result(
        Verdict.PASS,
        f"Tenant {a}'s own prefix hits the cache ({len(own_hits)} of {_asked(seen, 'own')}) and tenant {b} misses "
        f"it {told}.{contents}{warning}{tiers}",
        "Run again weekly and after changes of the gateway.",
        warn=bool(stolen) or not seen.tier_asked,
    )


def _hit(seen: PrefixSeen, one: Cached) -> bool:
    return one.cached is not None and one.cached > seen.tolerance


def _over(seen: PrefixSeen, arm: str) -> list[int]:
    return [one.cached or 0 for one in seen.counts if one.arm == arm and _hit(seen, one)]


def _asked(seen: PrefixSeen, arm: str) -> int:
    return sum(one.arm == arm for one in seen.counts)


def _timing(seen: PrefixSeen, measures: dict[str, Any]) -> str:
    """ "shared", "drift", "control" (the same-tenant arm shows the cache) or "" (times show nothing)."""
    if min(len(seen.hits), len(seen.misses), len(seen.own_hits)) < 50:
        return ""
    from kvaudit.auditor.stats.timing import differ, faster

    middle = len(seen.misses) // 2
    null = differ(seen.misses[:middle], seen.misses[middle:])  # in the order of time: drift shows
    cross, own = faster(seen.hits, seen.misses), faster(seen.own_hits, seen.misses)
    measures["timing"] = {
        "p": cross.p,
        "auc": round(cross.auc, 4),
        "median_gain": round(cross.median_gain, 4),
        "own_p": own.p,
        "own_auc": round(own.auc, 4),
        "null_p": null,
        "samples": len(seen.hits),
    }
    if null < DRIFT:
        return "drift"
    if cross.p < ALPHA and cross.median_gain > LEAST_GAIN:
        return "shared"
    return "control" if own.p < ALPHA else ""


def _measures(seen: PrefixSeen) -> dict[str, Any]:
    return {
        "cached": [
            {"arm": one.arm, "repeat": one.repeat, "cached_tokens": one.cached, "prompt_tokens": one.tokens}
            for one in seen.counts
        ],
        "tolerance_tokens": seen.tolerance,
        "contents": [asdict(one) | {"p": one.p} for one in recalls(seen.recalled)],
        "response_cache": [
            {"way": one.way, "pairs": len(one.pairs), "signs": list(one.signs())} for one in seen.twins
        ],
        "equal_answers": seen.equal_answers,
        "compared_answers": seen.compared_answers,
        "drawn_again": seen.drawn_again,
        "tier_filled": seen.tier_asked,
        "entry_sets_salts": seen.entry_sets_salts,
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
    }
