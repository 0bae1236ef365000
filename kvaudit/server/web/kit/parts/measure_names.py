"""What readers call the measures of checks, and how their numbers are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LABELS: Mapping[str, str] = {
    # pool
    "pool_tokens": "KV pool, smallest (tokens)",
    "context_tokens": "Context (tokens)",
    "reachable_tokens": "Longest reachable request (tokens)",
    "headroom": "Headroom (× context)",
    "required_tokens": "Pool required (tokens)",
    "missing_tokens": "Missing (tokens)",
    "headroom_tokens": "Cost of the headroom (tokens)",
    "danger_zone": "Danger zone (prompt tokens)",
    "full_context_requests": "Full-context requests that fit at once",
    "edge_limit": "Edge limit (declared)",
    # rejection
    "first_rejected_tokens": "N, the first length that must be refused (tokens)",
    "located_by_search": "N was found by search",
    "edge_limit_refused": "Lengths above the edge limit were refused",
    "pool_use_before": "Pool in use before (the engine's unit)",
    "pool_use_after": "Pool in use after (the engine's unit)",
    "pool_left_behind": "Pool left in use by nobody",
    # every active check
    "wedged": "A prompt stopped the server from answering",
    "wedged_tokens": "That prompt (tokens)",
    # canary and concurrency
    "planned_rounds": "Rounds planned",
    "accepted_rounds": "Rounds that count",
    "accepted": "Requests below N that were answered",
    "accepted_above_limit": "Requests from N on that were answered",
    "refused": "Requests refused",
    "without_nonce": "Answers without their own nonce",
    "valid": "Valid requests",
    "void": "Invalid requests (excluded)",
    "bound": "Leaks are rarer than",
    "confidence": "Confidence of that bound",
    "surfacing": "Answers in which stale text would surface",
    "surfacing_trials": "Answers asked for their phrase",
    "tails": "Surfacing by way to ask and tail",
    "effective_trials": "Effective trials",
    "untested": "Not tested",
    "idle_seconds": "Left alone (seconds)",
    "dirtying": "Share of the tokens served meanwhile that was ours",
    "hits": "Markers that surfaced",
    "suspicious": "Runs of three marker words (too short to prove a leak)",
    "decoys_met": "Decoys found, which nobody ever sent",
    "earlier_markers": "Markers of earlier runs that were looked for as well",
    "left_out": "Lengths not sent any more, and how they ended",
    "repeats_after_hit": "Requests repeated after the hit",
    "hits_in_repeats": "Of these, with another marker",
    "live_days": "Markers stay live for (days)",
    "live_markers_kept": "Markers planted by this run, decoys included",
    "planned": "Requests planned",
    "valid_under_load": "Valid requests under load",
    "hits_under_load": "Markers that surfaced under load",
    "cancelled": "Requests cancelled on purpose",
    "cancelled_planned": "Requests to be cancelled",
    "retried": "Requests sent again after their cancellation",
    "workers": "Requests at once",
    "order": "Order of the arms",
    "nonce_lost": "Answers without their own nonce, of those judged",
    "nonce_p": "Chance of losing so many nonces without a fault (p)",
    "visit_controls_lost": "Facts lost by the controls of return visits",
    "visit_p": "Chance of losing so many facts without a fault (p)",
    "late_timers": "Our own timers that were late",
    # coherence
    "baseline": "Facts found in a short prompt",
    "all_in_one_prompt": "All facts asked in one prompt",
    # prefill
    "fit": "Curve fitted to the times",
    "median_residual": "Median distance from the curve (log scale)",
    "drifted": "The times drifted from those of earlier runs",
    "judged": "Lengths judged",
    "points": "Times to the first token",
    "p5": "p5 of the long prompts",
    # prefix
    "timing": "Times of shared against fresh prefixes",
    "cached": "Tokens that the engine said came from its cache",
    "tolerance_tokens": "Tolerance (tokens)",
    "equal_answers": "Equal answers",
    "compared_answers": "Answers compared",
    "drawn_again": "Prefixes drawn again",
    "tier_filled": "Requests to fill the cache's lower tier",
    "entry_sets_salts": "The entry sets salts of its own",
    # accounting
    "prompts": "Prompts sent",
    "miscounted": "Prompts counted wrong",
    "phantom_cached": "Fresh prompts said to come from the cache",
    "largest_cached_tokens": "Most tokens said to come from the cache",
    "cached_not_reported": "Answers that do not say what came from the cache",
    # session
    "planned_claims": "Claims planned",
    "claims": "Claims made",
    "reused_claims": "Claims that got a used slot",
    "reuse_told_by": "Reuse was told by",
    "seeded": "Slots seeded",
    "own_markers": "Own markers read back, of those written",
    "oversize": "Oversized requests taken, of those sent",
    "late_writes": "Late writes tested, of those tried",
    "echoes": "Right echoes, of all",
    "cut": "Requests left early",
    # every check
    "scope": "Scope",
    "findings": "Findings",
    "warnings": "Warnings",
}

COLUMNS: Mapping[str, str] = {
    "tokens": "Prompt (tokens)",
    "by_depth": "Found at depth",
    "fresh": "Text drawn anew (times)",
    "nonce": "Gave its nonce",
    "pool_peak": "Pool in use at most",
    "looks": "Looks at the pool",
}
"""Columns of tables, where the field's name alone says too little."""

PAIRS: Mapping[str, str] = {
    "p": "another's prefix is not faster (p)",
    "auc": "another's prefix told apart by time (0.5: not at all)",
    "median_gain": "another's prefix is faster by, of the median",
    "own_p": "the own prefix is not faster (p)",
    "own_auc": "the own prefix told apart by time",
    "null_p": "fresh prefixes do not differ among themselves (p)",
    "samples": "prefixes timed",
    "own_data": "answered with the own data",
    "odd_status": "answered with an odd status",
}
"""Keys of objects; those that others named stay as they are."""

FIRST_COLUMNS: Sequence[str] = ("name", "node", "id", "arm", "role", "engine", "version", "tokens")
"""In this order, before all others."""

PERCENT = frozenset({"bound", "confidence", "surfacing", "dirtying", "baseline", "pool_peak", "median_gain"})
"""Shares of one."""

PAIRED = frozenset({"own_markers", "oversize", "late_writes", "echoes", "nonce_lost", "late_timers"})
"""Two numbers: so many, of so many."""

WITHOUT: Mapping[str, str] = {  # what no value means where it does not mean that a reading failed
    "edge_limit": "none declared",
    "edge_limit_refused": "not asked: no edge limit is declared",
    "danger_zone": "none found",
    "changed_at": "never seen to change",
    "gate_completed_at": "never",
    "bound": "none: this run bounds nothing",
    "reuse_told_by": "nothing",
    "p5": "not measured by probes",
}


def percent(share: float) -> str:
    """0.04879 -> ``4.9 %``, 0.95 -> ``95 %``, 0.0003 -> ``0.03 %``."""
    value = share * 100
    if value and abs(value) < 0.1:
        return f"{value:.1g} %"
    return f"{value:,.1f}".removesuffix(".0") + " %"


def written(name: str, value: object) -> str | None:
    """A number by what it measures; None where the name asks for nothing special."""
    if name in PERCENT and isinstance(value, (int, float)) and not isinstance(value, bool):
        return WITHOUT[name] if name == "bound" and value >= 1 else percent(value)
    if name in PAIRED and isinstance(value, list) and len(value) == 2:
        count, whole = value
        if isinstance(count, int) and isinstance(whole, int):
            return f"{count:,} of {whole:,}"
    return None
