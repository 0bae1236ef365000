"""Judges first-token times: is any too short for the prompt that it belongs to? Pure: no clock, no network. `RULES`
says what decides before what (checks.md 7)."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.checks.misses import LOOK_AT_MISSES
from kvaudit.auditor.checks.prefill.seen import (
    MOST_SIGMA,
    PrefillSeen,
    Timing,
    drifted,
    residual,
    uncached,
)
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    GIVE_CONSENT,
    NO_CONSENT,
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
from kvaudit.auditor.verdict import Result, Verdict

LEAST_UNREAD = 2
"""Fast answers without their nonce that make a fail: a single one may be chance."""

LEAST_SHOWN = 2
"""Answers of the longest prompt that a pass needs, timed and with their nonce, and two of three of those that came."""

DOES_NOT_PROVE = (
    "It fails only where rejection does; its own worth is on production traffic (the p5 of the long-context bucket), "
    "which these few probes cannot reach. A leak whose prefill really ran is not seen."
)


def judge_prefill(seen: PrefillSeen) -> Result:
    """The verdict of checks.md 7."""
    timing = Timing(seen)
    result = result_builder("prefill", _measures(timing), DOES_NOT_PROVE, seen.evidence)
    return first_that_holds(RULES, timing, result)


def _not_read(timing: Timing) -> str:
    if len(timing.unread) < LEAST_UNREAD:
        return ""
    return (
        f"Prompts of {timing.unread[0].tokens:,} tokens were answered far faster than this target can read them "
        f"({len(timing.unread)} times, and again when repeated) and without their own nonce: they were not read."
    )


def _unhealthy(timing: Timing) -> str:
    """Whom the target no longer lets in cannot say how it is."""
    return "" if timing.refused_keys else unhealthy_after("timed prompts", timing.seen.unhealthy)


def _too_few(timing: Timing) -> str:
    if timing.fitted is not None:
        return ""
    return (
        f"Only {len(timing.usable)} timed answers at {len(timing.lengths)} lengths with their nonce "
        f"({voids(timing.everything)}): too few to fit. {_how_far(timing.seen)}".rstrip()
    )


def _scatter(timing: Timing) -> str:
    if timing.fitted is None or timing.fitted.sigma <= MOST_SIGMA:
        return ""
    return f"First-token times scatter too much to judge (sigma {timing.fitted.sigma:.2f} on the log scale)."


def _fast(timing: Timing) -> str:
    if not timing.fast:
        return ""
    missing = sum(one.nonce is not True for one in timing.fast)
    how = (
        f"{missing} of {len(timing.fast)} without their nonce, but not twice and again when repeated"
        if missing
        else "nonce and all"
    )
    return f"Prompts of {timing.fast[0].tokens:,} tokens were answered far faster than the fit allows, {how}."


def _refused_below(timing: Timing) -> str:
    if not (refused := timing.refused_below):
        return ""
    return (
        f"{len(refused)} of {len(timing.everything)} prompts were refused below the limit, one of "
        f"{refused[0].tokens:,} tokens: several limits, or a wrong one."
    )


def _unfinished(timing: Timing) -> str:
    if not timing.seen.stopped and void_share(timing.everything) <= VOID_SHARE and timing.answered:
        return ""
    return f"Not measured to the end ({voids(timing.everything)}). {_how_far(timing.seen)}".rstrip()


def _untestable(timing: Timing) -> str:
    if not timing.untestable:
        return ""
    return (
        f"At {timing.untestable[0].tokens:,} tokens prefill takes no longer than the constant part of an answer, or "
        "the length lies too far beyond the fitted ones: a skipped prefill would not show."
    )


def _not_shown(timing: Timing) -> str:
    shown, answered = len(timing.shown), len(timing.answered)
    if shown >= LEAST_SHOWN and 3 * shown >= 2 * answered:
        return ""
    return (
        f"Only {shown} of {answered} answers to prompts of {timing.answered[0].tokens:,} tokens were timed and gave "
        f"their nonce; {LEAST_SHOWN}, and two of three, are needed."
    )


def _withheld(timing: Timing) -> str:
    if not timing.seen.withheld:
        return ""
    return f"{timing.shown[0].tokens:,} tokens took as long as shorter prompts foretell, but {NO_CONSENT}"


FASTER = " Over the runs since the last change long prompts have become faster than short ones foretell."


def _as_foretold(timing: Timing) -> str:
    return (
        f"{len(timing.shown)} prompts of {timing.shown[0].tokens:,} tokens took as long as {len(timing.usable)} "
        f"shorter ones foretell ({voids(timing.everything)}).{timing.seen.misses.said}"
        f"{asked_as(timing.seen.judged)}{timing.seen.misses.unheard}"
    )


def _drifting(timing: Timing) -> str:
    return _as_foretold(timing) + FASTER if drifted(timing.seen.earlier, residual(timing.usable)) else ""


ERROR, FAIL, OPEN, PASS = Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS
_WATCH = "Watch the p5 of production prefill times."

RULES: tuple[Rule[Timing], ...] = (
    Rule("not read", FAIL, _not_read, lambda timing: f"Stop serving prompts of {timing.unread[0].tokens:,} tokens and "
         "more; run rejection and canary.", "critical"),
    Rule("unhealthy", FAIL, _unhealthy, RESTART, "high"),
    Rule("key refused", ERROR, lambda timing: key_refused(timing.refused_keys), CHECK_THE_KEY),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("too few", OPEN, _too_few, lambda timing: needed(timing.seen.stopped) if timing.seen.stopped else
         "Run again when the target answers."),
    Rule("scatter", OPEN, _scatter, "Measure in a quieter window."),
    Rule("fast", OPEN, _fast, "Look for a cache that is not reported, or a faster path for long prompts.", warn=True),
    Rule("refused below", OPEN, _refused_below, "Address one replica, or declare its context, then run again.",
         warn=True),
    Rule("unfinished", OPEN, _unfinished, lambda timing: needed(timing.seen.stopped) if timing.seen.stopped else
         "Run again."),
    Rule("misses", OPEN, lambda timing: timing.seen.misses.why_no_pass, LOOK_AT_MISSES, warn=True),
    Rule("untestable", OPEN, _untestable, "Nothing to do; rejection and coherence do not depend on timing."),
    Rule("not shown", OPEN, _not_shown, "Ask a route that streams and a model that gives its nonce there, then run "
         "again."),
    Rule("withheld", OPEN, _withheld, GIVE_CONSENT),
    Rule("drifting", PASS, _drifting, _WATCH, warn=True),
    Rule("as foretold", PASS, _as_foretold, _WATCH),
)  # fmt: skip


def _how_far(seen: PrefillSeen) -> str:
    if not seen.stopped:
        return ""
    return unfinished(len(seen.fitted) + len(seen.judged), seen.planned, "timed prompts", seen.stopped)


def _measures(timing: Timing) -> dict[str, Any]:
    seen = timing.seen
    measures: dict[str, Any] = {
        "points": [
            {"tokens": one.tokens, "uncached": uncached(one), "seconds": one.first_token, "name": one.name}
            for one in timing.everything
            if one.first_token is not None and one.outcome is Outcome.ANSWERED
        ],
        "valid": sum(one.outcome.valid for one in timing.everything),
        "void": sum(not one.outcome.valid for one in timing.everything),
        "ways": ways_asked(timing.everything),
        "misses": seen.misses.as_measure(),
        "p5": None,
        "p5_note": "a p5 needs 59 requests per length bucket; it comes from production traffic",
    }
    if (curve := timing.fitted) is not None:
        measures["fit"] = {"a": curve.a, "b": curve.b, "c": curve.c, "sigma": curve.sigma}
    if timing.curve is not None:
        measures["median_residual"] = now = residual(timing.usable)
        measures["drifted"] = drifted(seen.earlier, now)
        measures["judged"] = [
            {
                "name": one.name,
                "tokens": one.tokens,
                "seconds": one.first_token,
                "expected": speed.expected,
                "ratio": speed.ratio,
                "z": speed.z,
                "testable": speed.testable,
                "too_fast": speed.too_fast,
                "nonce": one.nonce,
            }
            for one, speed in timing.compared
        ]
    return measures
