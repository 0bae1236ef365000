"""Judges the rounds against a session API. Pure: no clock, no network."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvaudit.auditor.checks.session.api import SessionPlan
from kvaudit.auditor.checks.session.seen import ForeignData, SessionSeen, allowance
from kvaudit.auditor.checks.trials import VOID_SHARE, distinct_evidence, needed, unfinished
from kvaudit.auditor.stats.bounds import upper_bound
from kvaudit.auditor.verdict import Result, Verdict

HEADROOM = 1.25
LEAST_ECHO = 0.9

DOES_NOT_PROVE = (
    "It bounds claims like these of two accounts, over the declared requests only: nothing of other endpoints, of "
    "state outside the declared fields (database session settings, temporary tables), of load, nor of processes "
    "behind the same address that did not answer."
)
FIRST_AID = {
    "released data": "Reset a slot when it is released and refuse to read it before it is written; then run again.",
    "stale handle": "Give every grant a generation, compare it and the owner on each read and write; then run again.",
    "late write": "Let writes carry the generation of their grant and drop those that come too late; then run again.",
    "shifted reply": "Discard a connection whose command was cancelled instead of returning it; then run again.",
}


def missing_parts(plan: SessionPlan) -> tuple[str, ...]:
    """What the description neither declares nor calls absent; each keeps a pass away."""
    parts = {
        "reject": bool(plan.of("reject")),
        "drop": plan.wait > 0,
        "timeout": plan.wait > 0,
        "late": bool(plan.of("save")),
        "cancel": bool(plan.of("echo")),
    }
    return tuple(name for name, there in parts.items() if not there and name not in plan.without)


def why_unasked(seen: SessionSeen, why: str) -> Result:
    """Nobody could be asked. Never a pass."""
    return Result(
        "session",
        Verdict.INCONCLUSIVE,
        f"session was not asked: {why[:1].lower() + why[1:].rstrip('.') if why else f'it needs {seen.unaskable}'}.",
        next="Describe the session API under session: in the fleet file, give two accounts as tenants, and on a server "
        "have the steps approved by a second person.",
        does_not_prove="Anything: no request was sent.",
    )


def judge_session(seen: SessionSeen) -> Result:
    """The verdict of checks.md 12."""
    measures = _measures(seen)

    def result(
        verdict: Verdict, summary: str, next_step: str, severity: str = "", warn: bool = False
    ) -> Result:
        absent = (
            f" The service is declared to have no {', '.join(sorted(seen.not_there))}."
            if seen.not_there
            else ""
        )
        return Result(
            "session",
            verdict,
            summary,
            measures,
            next_step,
            DOES_NOT_PROVE + absent,
            warn=warn,
            severity=severity,
            evidence=distinct_evidence(seen.evidence),
        )

    if seen.finds:
        first = seen.finds[0]
        return result(Verdict.FAIL, _find_sentence(first, seen), FIRST_AID[first.kind], "critical")
    if seen.oversize_taken:
        assert seen.largest is not None
        return result(
            Verdict.FAIL,
            f"A request of size {seen.largest + 1} was accepted {seen.oversize_taken} of {seen.oversize_asked} times, "
            f"although {seen.largest} is the largest.",
            "Refuse what is larger than one slot can hold at admission, with a 4xx, before anything is reserved.",
            "high",
        )
    if small := _too_small(seen):
        return result(
            Verdict.FAIL, small, "Enlarge the pool, or lower the largest request that is admitted.", "high"
        )
    if seen.denied:
        return result(
            Verdict.ERROR,
            f"The session API refused the key of {seen.denied}: nothing was learnt.",
            "Check both accounts' keys and run again.",
        )
    if problem := _pool_error(seen):
        return result(Verdict.ERROR, problem, "Correct the pool's path and pointers in the fleet file.")
    if reason := _why_not(seen):
        return result(
            Verdict.INCONCLUSIVE,
            f"Not shown either way: {reason} {seen.reused} of {seen.planned} planned claims reused a slot. This is not "
            "a pass.",
            needed(seen.stopped) if seen.stopped else "Remove the hindrance and run again.",
            warn=bool(_warnings(seen)),
        )
    warnings = _warnings(seen)
    return result(
        Verdict.PASS,
        f"{seen.reused} claims got a slot that the other account had just released "
        f"({', '.join(sorted(seen.released))}); none showed its data, {seen.stale_asked} uses of old handles, "
        f"{seen.late_tested} late writes and {seen.cut} calls that were cut off changed nothing. Fewer than "
        f"{upper_bound(0, seen.reused):.1%} of claims show another's data (95 % confidence)."
        + "".join(f" But {warning}" for warning in warnings),
        "Run again after every deploy and every change of the pool's size.",
        warn=bool(warnings),
    )


def _find_sentence(first: ForeignData, seen: SessionSeen) -> str:
    how = " over a connection that both used" if first.shared else ""
    if first.kind == "shifted reply":
        return (
            f"After a call was cut off, {first.reader} received the answer to another question of {first.owner}{how}: "
            f"replies are shifted ({len(seen.finds)} times in {seen.echoes} calls)."
        )
    what = {
        "released data": f"what {first.owner} had left in a session that ended ({first.release})",
        "stale handle": f"data of {first.owner} through the handle of a session that had ended",
        "late write": f"what {first.owner} saved after its session had been released",
    }[first.kind]
    return f"{first.reader} read {what}{how}, in round {first.round + 1}, after {seen.claims} claims."


def _too_small(seen: SessionSeen) -> str:
    if seen.pool is None or not seen.pool.pool.known or seen.largest is None:
        return ""
    capacity = seen.pool.pool.value
    assert capacity is not None
    if capacity >= seen.largest:
        return ""
    said = "declared" if seen.largest_declared else "read"
    return f"The pool holds {capacity:,}, and one request may take {seen.largest:,} ({said}): it cannot be served."


def _pool_error(seen: SessionSeen) -> str:
    return f"The pool's numbers could not be read: {seen.pool_problem}." if seen.pool_problem else ""


def _why_not(seen: SessionSeen) -> str:
    if seen.stopped:
        return unfinished(seen.claims, seen.planned, "claims", seen.stopped)
    if seen.requests and seen.void > VOID_SHARE * seen.requests:
        return f"{seen.void} of {seen.requests} requests brought no usable answer."
    if not seen.seeds:
        return "no session could be created."
    if seen.own_read < seen.own_written or not seen.own_written:
        return (
            f"{seen.own_read} of {seen.own_written} markers could be read back by their own account, so another's "
            "would not be seen in every field."
        )
    if not seen.reused:
        return (
            "no claim was seen to reuse a slot: capture a slot's number as slot, or give the pool's capacity, so that "
            "reuse can be told."
        )
    if seen.reused < seen.planned:
        return "too few claims reused a slot."
    for way in ("end", "drop", "timeout", "reject"):
        if way not in seen.not_there and not seen.released.get(way):
            return f"no session ended by {way}; declare how, or say under without that there is no such way."
    if seen.undeclared:
        return f"{', '.join(seen.undeclared)} was neither declared nor called absent under without."
    if seen.largest is None:
        return "the largest request is unknown, so nothing above it could be tried."
    if not seen.oversize_asked:
        return f"no request of size {seen.largest + 1} was answered."
    if not seen.stale_asked:
        return "no old handle was answered."
    if "late" not in seen.not_there and not seen.late_tested:
        return f"{seen.late_tried} saves were all done before the session was claimed again: none came late."
    if "cancel" not in seen.not_there and seen.echoes_right < LEAST_ECHO * max(1, seen.echoes):
        return (
            f"only {seen.echoes_right} of {seen.echoes} answers repeated the word that they were asked with."
        )
    return ""


def _warnings(seen: SessionSeen) -> list[str]:
    found = []
    if seen.stale_own:
        found.append(f"{seen.stale_own} old handles still showed their own old data.")
    if seen.stale_taken:
        found.append(f"{seen.stale_taken} uses of old handles were accepted.")
    if seen.stale_odd:
        found.append(
            f"{seen.stale_odd} uses of old handles were refused with a status that does not say why."
        )
    if seen.pool is not None and seen.pool.pool.known and seen.largest is not None:
        capacity = seen.pool.pool.value or 0
        if capacity < HEADROOM * seen.largest:
            found.append(
                f"the pool of {capacity:,} holds a largest request of {seen.largest:,} with little room."
            )
    if leaked := _leaked(seen):
        found.append(leaked)
    return found


def _leaked(seen: SessionSeen) -> str:
    before, after = seen.in_use_before, seen.in_use_after
    if before is None or after is None or after <= before + allowance(before):
        return ""
    return f"the pool's use did not come back to {before:,.0f}: it stayed at {after:,.0f}."


def _measures(seen: SessionSeen) -> dict[str, Any]:
    pool = seen.pool
    return {
        "planned_claims": seen.planned,
        "claims": seen.claims,
        "reused_claims": seen.reused,
        "reuse_told_by": seen.reuse_by or None,
        "bound": round(upper_bound(0, seen.reused), 5) if seen.reused and not seen.finds else None,
        "confidence": 0.95,
        "seeded": seen.seeds,
        "own_markers": [seen.own_read, seen.own_written],
        "released": dict(seen.released),
        "not_released": dict(seen.not_released),
        "largest": seen.largest,
        "largest_declared": seen.largest_declared,
        "oversize": [seen.oversize_taken, seen.oversize_asked],
        "stale": {
            "asked": seen.stale_asked,
            "own_data": seen.stale_own,
            "accepted": seen.stale_taken,
            "odd_status": seen.stale_odd,
        },
        "late_writes": [seen.late_tested, seen.late_tried],
        "echoes": [seen.echoes_right, seen.echoes],
        "cut": seen.cut,
        "capacity": pool.pool.value if pool is not None and pool.pool.known else None,
        "in_use_before": seen.in_use_before,
        "in_use_after": seen.in_use_after,  # three runs that rise in a row are a leak: compare with earlier ones
        "requests": seen.requests,
        "void": seen.void,
        "rounds_over_one_connection": seen.shared_rounds,
        "finds": [
            {
                "kind": kind,
                "reader": reader,
                "owner": owner,
                "release": release,
                "shared_connection": shared,
                "count": count,
            }
            for (kind, reader, owner, release, shared), count in Counter(
                (one.kind, one.reader, one.owner, one.release, one.shared) for one in seen.finds
            ).items()
        ],
    }
