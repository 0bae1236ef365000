"""Judges counts, contents, responses and times of the prefix check's arms. Pure: no clock, no network. `RULES` says
what decides before what (checks.md 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvaudit.auditor.checks.node_coverage import listed
from kvaudit.auditor.checks.prefix.contents import FAIL as GARBLED
from kvaudit.auditor.checks.prefix.contents import OPEN as DOUBTFUL
from kvaudit.auditor.checks.prefix.contents import Recall, recalls
from kvaudit.auditor.checks.prefix.responses import shared
from kvaudit.auditor.checks.prefix.seen import PrefixSeen
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    RESTART,
    VOID_SHARE,
    key_refused,
    needed,
    result_builder,
    unfinished,
    unhealthy_after,
    void_share,
    voids,
)
from kvaudit.auditor.checks.ways import asked_as, ways_asked
from kvaudit.auditor.engines import CACHED_TOKENS_FLAGS
from kvaudit.auditor.verdict import Result, Verdict

PARTS = 5
"""Counts, contents, tiers, responses and times."""

SEVERAL = 2
"""Hits that decide: one may be chance."""

DOES_NOT_PROVE = (
    "It covers these prefixes, this replica and the tiers that were filled; tiers and times are asked in one way. A "
    "cache that is keyed right can still be overwritten or read stale, which canary and rejection look for; and a "
    "client may choose its own salt."
)
MEND = "Have the gateway set a salt per tenant, over what clients send, on every cache tier; or turn the cache off."
WEEKLY = "Run again weekly and after changes of the gateway."
KEY_BY_TENANT = "Key the gateway's response cache by tenant, or turn it off."


def _crosses(arm: str, where: str) -> Callable[[PrefixSeen], str]:
    """Another tenant was served what only A had sent."""

    def said(seen: PrefixSeen) -> str:
        over = seen.over(arm)
        if len(over) < SEVERAL:
            return ""
        reader = next((one.tenant for one in over), "") or seen.tenants[1]
        return (
            f"Tenant {reader} was served {max(one.cached or 0 for one in over):,} cached tokens of a prefix that only "
            f"tenant {seen.tenants[0]} had sent{where} ({len(over)} of {len(seen.asked(arm))} times"
            f"{_routes(one.mode for one in over)}): the prefix cache crosses tenants."
        )

    return said


def _routes(modes: Iterable[str]) -> str:
    known = [mode for mode in dict.fromkeys(modes) if mode]
    return f", as {listed(known)}" if known else ""


def _same_lots(seen: PrefixSeen) -> str:
    one = next((lots for lots in seen.lots if lots.shared), None)
    if one is None:
        return ""
    return (
        f"Two tenants received byte-equal answers to a draw of lots, {one.equal} of {one.compared} times"
        f"{_routes([one.mode])}: a response cache in front of the engine is shared between keys."
    )


def _response_cache(seen: PrefixSeen) -> str:
    told = shared(seen.twins)
    return f"{told}: a response cache in front of the engine is shared between keys." if told else ""


def _garbled(seen: PrefixSeen) -> str:
    worst = next(iter(recalls(seen.recalled)), None)
    if worst is None or worst.p >= GARBLED:
        return ""
    return f"{worst.sentence}: a hit does not hold what was stored."


def _stolen_salt(seen: PrefixSeen) -> str:
    if not seen.over("stolen salt") or not seen.entry_sets_salts:
        return ""
    a, b = seen.tenants[:2]
    return (
        f"Tenant {b} reached tenant {a}'s cached prefix by sending {a}'s salt, through an entry that is "
        "declared to set salts itself."
    )


DRIFTED = (
    "Two halves of the same timing arm differ: the target drifted meanwhile and times cannot be compared."
)


def _drifted(seen: PrefixSeen) -> str:
    if seen.timing is None or not seen.timing.drifted:
        return ""
    return DRIFTED


def _faster(seen: PrefixSeen) -> str:
    timing = seen.timing
    if timing is None or not timing.shared:
        return ""
    return (
        f"Tenant {seen.tenants[1]} is answered faster on prefixes that tenant {seen.tenants[0]} sent before than on "
        f"fresh ones (p = {timing.cross.p:.1e}, {timing.cross.median_gain:.0%} of the median): the cache is shared "
        "although no count says so."
    )


def _stopped(seen: PrefixSeen) -> str:
    if not seen.stopped:
        return ""
    parts = "parts (counts, contents, tiers, responses, times)"
    return f"Not asked to the end: {unfinished(seen.parts, PARTS, parts, seen.stopped)}"


def _void(seen: PrefixSeen) -> str:
    return (
        f"Too many trials were void ({voids(seen.trials)})." if void_share(seen.trials) > VOID_SHARE else ""
    )


def _doubtful(recall: Recall) -> bool:
    return recall.p < DOUBTFUL or recall.excessive


def _some_garbled(seen: PrefixSeen) -> str:
    doubted = next((one for one in recalls(seen.recalled) if _doubtful(one)), None)
    return f"{doubted.sentence}: too few to call it damage, too many for none." if doubted else ""


def _not_seen(seen: PrefixSeen) -> str:
    by_time = seen.timing is not None and seen.timing.shows_the_cache
    if len(seen.over("own")) >= SEVERAL or by_time:
        return ""
    counted = any(one.cached is not None for one in seen.asked("own"))
    why = "a tenant's own repeated prefix did not hit either" if counted else "cached tokens are not reported"
    return (
        f"The cache cannot be seen: {why}, and no time shows it. Silence across tenants means nothing then."
    )


def _one_crossed(seen: PrefixSeen) -> str:
    if not seen.over("cross") and not seen.over("tier cross"):
        return ""
    return "One cross-tenant request reported cached tokens and the others did not: not shown either way."


def _isolated(seen: PrefixSeen) -> str:
    a, b = seen.tenants[:2]
    told = (
        f"by count and by time ({len(seen.hits)} timed pairs)"
        if seen.timing is not None
        else f"by count; {len(seen.hits)} timed pairs are too few to say the same of times"
    )
    hits = sum(one.asked for one in recalls(seen.recalled))
    return (
        f"Tenant {a}'s own prefix hits the cache ({len(seen.over('own'))} of {len(seen.asked('own'))}) and tenant {b} "
        f"misses it {told}."
        f"{f' {hits} questions to texts out of the cache were answered from them.' if hits else ''}"
        f"{' ' + SALT_IS_CHOSEN if seen.over('stolen salt') else ''}"
        f"{'' if seen.tier_asked else ' Tiers beyond the pool were not filled.'}"
        f"{_unseen(seen)}{asked_as(seen.trials)}"
    )


SALT_IS_CHOSEN = "A salt protects only if the gateway sets it: any tenant that sends another's salt hits."


def _left_open(seen: PrefixSeen) -> bool:
    return bool(seen.over("stolen salt")) or not seen.tier_asked


def _unseen(seen: PrefixSeen) -> str:
    """What a pass says of routes where a tenant's own prefix does not hit, since there silence means nothing."""
    modes = dict.fromkeys(one.mode for one in seen.asked("own"))
    hit = {one.mode for one in seen.over("own")}
    unseen = [mode for mode in modes if mode not in hit]
    if not hit or not unseen:
        return ""
    return f" Asked as {listed(unseen)} no cache is to be seen."


ERROR, FAIL, OPEN, PASS = Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS
_EVICTED = " after it had been evicted and came back from a second tier"
_FLAGS = ", ".join(CACHED_TOKENS_FLAGS.values())

RULES: tuple[Rule[PrefixSeen], ...] = (
    Rule("key refused", ERROR, lambda seen: key_refused(seen.trials), CHECK_THE_KEY),
    # What was seen stands, counts before times.
    Rule("crosses tenants", FAIL, _crosses("cross", ""), MEND, "high"),
    Rule("crosses tenants in a tier", FAIL, _crosses("tier cross", _EVICTED), MEND, "high"),
    Rule("same lots", FAIL, _same_lots, KEY_BY_TENANT, "high"),
    Rule("response cache", FAIL, _response_cache, KEY_BY_TENANT, "high"),
    Rule("garbled hits", FAIL, _garbled, "Turn the prefix cache, or its second tier, off, and report it upstream with "
         "these numbers.", "high"),
    Rule("stolen salt", FAIL, _stolen_salt, "Have the gateway overwrite the salt that clients send.", "high"),
    Rule("drifted", ERROR, _drifted, "Measure in a quieter window."),
    Rule("faster", FAIL, _faster, MEND, "medium"),
    Rule("unhealthy", FAIL, lambda seen: unhealthy_after("cached prefixes were asked", seen.unhealthy), RESTART,
         "high"),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("stopped", OPEN, _stopped, lambda seen: needed(seen.stopped)),
    Rule("void", OPEN, _void, "Run again."),
    Rule("some hits garbled", OPEN, _some_garbled, "Run it again; open the sealed answers of the texts that came back "
         "(run page, Evidence).", warn=True),
    Rule("cache not seen", OPEN, _not_seen, f"Report cached tokens ({_FLAGS}), or attest that it is off."),
    Rule("one crossed", OPEN, _one_crossed, "Run again.", warn=True),
    Rule("salt or tiers left open", PASS, lambda seen: _isolated(seen) if _left_open(seen) else "", WEEKLY, warn=True),
    Rule("isolated", PASS, _isolated, WEEKLY),
)  # fmt: skip


def judge_prefix(seen: PrefixSeen) -> Result:
    """The verdict of checks.md 8."""
    result = result_builder("prefix", _measures(seen), DOES_NOT_PROVE, seen.evidence)
    return first_that_holds(RULES, seen, result)


def _measures(seen: PrefixSeen) -> dict[str, Any]:
    return {
        "cached": [
            {
                "arm": one.arm,
                "repeat": one.repeat,
                "mode": one.mode,
                "cached_tokens": one.cached,
                "prompt_tokens": one.tokens,
            }
            for one in seen.counts
        ],
        "tolerance_tokens": seen.tolerance,
        "contents": [one.as_measure() for one in recalls(seen.recalled)],
        "response_cache": [
            {"way": one.way, "pairs": len(one.pairs), "signs": list(one.signs())} for one in seen.twins
        ],
        "equal_answers": sum(one.equal for one in seen.lots),
        "compared_answers": sum(one.compared for one in seen.lots),
        "drawn_again": sum(one.again for one in seen.lots),
        "tier_filled": seen.tier_asked,
        "entry_sets_salts": seen.entry_sets_salts,
        "ways": ways_asked(seen.trials),
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        **({"timing": seen.timing.as_measure()} if seen.timing is not None else {}),
    }
