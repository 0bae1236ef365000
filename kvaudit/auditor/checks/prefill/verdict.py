"""Judges first-token times: is any too short for the prompt that it belongs to? Pure: no clock, no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Any

from kvaudit.auditor.checks.misses import LOOK_AT_MISSES
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome
from kvaudit.auditor.checks.trials import (
    GIVE_CONSENT,
    NO_CONSENT,
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
from kvaudit.auditor.checks.ways import asked_as, ways_asked
from kvaudit.auditor.stats.cusum import first_alarm
from kvaudit.auditor.verdict import Evidence, Result, Verdict

FITTED = 40  # planned times below the judged lengths
MOST_SIGMA = 0.5
"""Above this spread on the log scale the times are noise and nothing can be judged."""

BASELINE_RUNS = 10
SPREAD_FLOOR = 0.05  # least assumed spread of a run's residual, log scale

DOES_NOT_PROVE = (
    "It fails only where rejection does; its own worth is on production traffic (the p5 of the long-context bucket), "
    "which these few probes cannot reach. A leak whose prefill really ran is not seen."
)


@dataclass(slots=True)
class PrefillSeen:
    limits: Limits | None
    fitted: list[Trial] = field(default_factory=list)
    judged: list[Trial] = field(default_factory=list)
    asked: list[Trial] = field(default_factory=list)  # these, and what followed up their misses
    misses: MissesByWay = field(default_factory=MissesByWay)
    planned: int = 0  # timed prompts
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False
    unhealthy: str = ""
    earlier: Sequence[float] = ()  # median residuals of earlier runs since the last change, oldest first


def judge_prefill(seen: PrefillSeen) -> Result:
    """The verdict of checks.md 7."""
    everything = [*seen.fitted, *seen.judged]
    measures: dict[str, Any] = {
        "points": [
            {"tokens": one.tokens, "uncached": _uncached(one), "seconds": one.first_token, "name": one.name}
            for one in everything
            if one.first_token is not None and one.outcome is Outcome.ANSWERED
        ],
        "valid": sum(one.outcome.valid for one in everything),
        "void": sum(not one.outcome.valid for one in everything),
        "ways": ways_asked(everything),
        "misses": seen.misses.as_measure(),
        "p5": None,
        "p5_note": "a p5 needs 59 requests per length bucket; it comes from production traffic",
    }

    result = result_builder("prefill", measures, DOES_NOT_PROVE, seen.evidence)

    if (error := nothing_learnt(result, everything)) is not None:
        return error
    if seen.unhealthy and not seen.judged:
        return no_longer_healthy(result, "timed prompts", seen.unhealthy)
    usable = [one for one in seen.fitted if one.read and one.first_token]
    lengths = {one.tokens for one in usable}
    if len(lengths) < 7 or len(usable) < 0.9 * FITTED:
        return result(
            Verdict.INCONCLUSIVE,
            f"Only {len(usable)} timed answers at {len(lengths)} lengths with their nonce ({voids(everything)}): too "
            f"few to fit. {_how_far(seen)}".rstrip(),
            needed(seen.stopped) if seen.stopped else "Run again when the target answers.",
        )
    from kvaudit.auditor.stats.ttft import fit, judge

    curve = fit([_uncached(one) for one in usable], [one.first_token or 0.0 for one in usable])
    measures["fit"] = {"a": curve.a, "b": curve.b, "c": curve.c, "sigma": curve.sigma}
    if curve.sigma > MOST_SIGMA:
        return result(
            Verdict.INCONCLUSIVE,
            f"First-token times scatter too much to judge (sigma {curve.sigma:.2f} on the log scale).",
            "Measure in a quieter window.",
        )
    measures["median_residual"] = now = residual(usable)
    measures["drifted"] = drift = drifted(seen.earlier, now)
    faster = (
        " Over the runs since the last change long prompts have become faster than short ones foretell."
        if drift
        else ""
    )
    flagged, untestable, compared = [], [], []
    for one in seen.judged:
        if one.outcome is not Outcome.ANSWERED or not one.first_token:
            continue
        speed = judge(curve, _uncached(one), one.first_token)
        compared.append(
            {
                "name": one.name,
                "tokens": one.tokens,
                "seconds": one.first_token,
                "expected": speed.expected,
                "ratio": speed.ratio,
            }
            | {"z": speed.z, "testable": speed.testable, "too_fast": speed.too_fast, "nonce": one.nonce}
        )
        if speed.too_fast:
            flagged.append(one)
        elif not speed.testable:
            untestable.append(one)
    measures["judged"] = compared
    unread = [one for one in flagged if one.nonce is False]
    if unread:
        return result(
            Verdict.FAIL,
            f"Prompts of {unread[0].tokens:,} tokens were answered far faster than this target can read them "
            f"({len(unread)} times) and without their own nonce: they were not read.",
            f"Stop serving prompts of {unread[0].tokens:,} tokens and more; run rejection and canary.",
            "critical",
        )
    if flagged:
        return result(
            Verdict.INCONCLUSIVE,
            f"Prompts of {flagged[0].tokens:,} tokens were answered far faster than the fit allows, nonce and all.",
            "Look for a cache that is not reported, or a faster path for long prompts.",
            warn=True,
        )
    if seen.unhealthy:
        return no_longer_healthy(result, "timed prompts", seen.unhealthy)
    accepted = [one for one in seen.judged if one.name == "longest" and one.outcome is Outcome.ANSWERED]
    if seen.stopped or void_share(everything) > VOID_SHARE or not accepted:
        return result(
            Verdict.INCONCLUSIVE,
            f"Not measured to the end ({voids(everything)}). {_how_far(seen)}".rstrip(),
            needed(seen.stopped) if seen.stopped else "Run again.",
        )
    if missed := seen.misses.why_no_pass:
        return result(Verdict.INCONCLUSIVE, missed, LOOK_AT_MISSES, warn=True)
    if untestable:
        return result(
            Verdict.INCONCLUSIVE,
            f"At {untestable[0].tokens:,} tokens prefill takes no longer than the constant part of an answer, or the "
            "length lies too far beyond the fitted ones: a skipped prefill would not show.",
            "Nothing to do; rejection and coherence do not depend on timing.",
        )
    if seen.withheld:
        return result(
            Verdict.INCONCLUSIVE,
            f"{accepted[0].tokens:,} tokens took as long as shorter prompts foretell, but {NO_CONSENT}",
            GIVE_CONSENT,
        )
    return result(
        Verdict.PASS,
        f"{len(accepted)} prompts of {accepted[0].tokens:,} tokens took as long as {len(usable)} shorter ones foretell "
        f"({voids(everything)}).{seen.misses.said}"
        f"{asked_as(seen.judged)}{faster}",
        "Watch the p5 of production prefill times.",
        warn=bool(faster),
    )


def _how_far(seen: PrefillSeen) -> str:
    if not seen.stopped:
        return ""
    return unfinished(len(seen.fitted) + len(seen.judged), seen.planned, "timed prompts", seen.stopped)


def _uncached(one: Trial) -> int:
    """Tokens that had to be read; prompts are unique, so an unreported cache counts as none."""
    return max(1, one.tokens - (one.cached_tokens or 0))


def residual(usable: Sequence[Trial]) -> float | None:
    """This run's point on the chart across runs: by how much (log scale, median) the two longest fitted
    lengths differ from what the shorter ones foretell; negative = faster. None without enough lengths."""
    from kvaudit.auditor.stats.ttft import fit

    top = sorted({one.tokens for one in usable})[-2:]
    below = [one for one in usable if one.tokens not in top]
    if len({one.tokens for one in below}) < 5:
        return None
    curve = fit([_uncached(one) for one in below], [one.first_token or 0.0 for one in below])
    return median(
        math.log((one.first_token or 1.0) / curve.expected(_uncached(one)))
        for one in usable
        if one.tokens in top
    )


def drifted(earlier: Sequence[float], now: float | None) -> bool | None:
    """Whether long prompts have become faster over many runs: a lower CUSUM over runs since the last
    change, standardised by the first ten; None with fewer than ten earlier ones."""
    if now is None or len(earlier) < BASELINE_RUNS:
        return None
    base = earlier[:BASELINE_RUNS]
    middle, spread = fmean(base), max(stdev(base), SPREAD_FLOOR)
    return first_alarm((value - middle) / spread for value in (*earlier[BASELINE_RUNS:], now)) is not None
