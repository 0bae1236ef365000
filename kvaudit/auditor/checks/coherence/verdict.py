"""Judges how many of its own facts a model found. Pure: no clock, no network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks.misses import LOOK_AT_MISSES, Misses
from kvaudit.auditor.checks.prober_protocol import Limits
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
from kvaudit.auditor.stats.bounds import critical_count
from kvaudit.auditor.text.prompts import Needle
from kvaudit.auditor.verdict import Evidence, Result, Verdict

NEEDLES = 10
FAILING = 2  # of ten facts found, or fewer, with the nonce missing
LEAST_BASELINE = 0.8
LEAST_ASKED = 2  # facts of a text, besides its nonce
ALPHA = 0.01
MOST_BASELINE = 0.98  # a perfect baseline of eleven questions does not prove a perfect model

DOES_NOT_PROVE = (
    "It tells whether the model read its own prompt at these lengths. A leak that adds foreign pages beside the own "
    "ones, or strikes only under load, can leave every answer right."
)


@dataclass(slots=True)
class Reading:
    """One length: its nonce and how many of the asked facts were found."""

    name: str
    tokens: int
    fresh: int  # 0 = at first, 1 = the confirming one
    nonce: bool | None = None
    asked: int = 0
    found: int = 0
    refused: bool = False
    depths: list[tuple[float, bool]] = field(default_factory=list)

    def note(self, needle: Needle, right: bool) -> None:
        self.asked += 1
        self.found += right
        self.depths.append((needle.depth, right))

    @property
    def complete(self) -> bool:
        return self.nonce is True and self.found == self.asked == NEEDLES

    @property
    def unread(self) -> bool:
        """Nonce missing and at most two of ten facts."""
        return self.nonce is False and self.asked >= 8 and self.found <= FAILING


@dataclass(slots=True)
class CoherenceSeen:
    """All texts of a run that were asked about, and why it stopped early."""

    limits: Limits | None
    baseline: Reading | None = None
    planned: int = 0  # lengths to be read
    together: bool = False  # whether the model answers all questions of one prompt
    readings: list[Reading] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    misses: Misses = field(default_factory=Misses)
    stopped: str = ""
    unhealthy: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False

    def above(self, tokens: int) -> bool:
        """Whether a prompt of this length should be refused; False while the limit is not known."""
        limit = self.limits.first_rejected if self.limits else None
        return limit is not None and tokens >= limit


def judge_coherence(seen: CoherenceSeen) -> Result:
    """The verdict of checks.md 5."""
    result = result_builder("coherence", _measures(seen), DOES_NOT_PROVE, seen.evidence)

    if (error := nothing_learnt(result, seen.trials)) is not None:
        return error
    unread = _unread_twice(seen)
    if unread is not None:
        return result(
            Verdict.FAIL,
            f"At {unread.tokens:,} tokens the model answered with HTTP 200 but knew neither its nonce nor more than "
            f"{unread.found} of {unread.asked} facts of its own prompt, twice: it read something else.",
            f"Stop serving prompts of {unread.tokens:,} tokens and more; run rejection and canary; see the pool check.",
            "critical",
        )
    if seen.unhealthy:
        return no_longer_healthy(result, "long prompts", seen.unhealthy)
    counted = f"{sum(one.outcome.valid for one in seen.trials)} valid trials, {voids(seen.trials)}"
    if seen.stopped:
        read = len({one.name for one in seen.readings})
        said = unfinished(read, seen.planned, "lengths", seen.stopped)
        return result(Verdict.INCONCLUSIVE, f"Not read to the end: {said}", needed(seen.stopped))
    if not seen.readings:
        return result(
            Verdict.INCONCLUSIVE,
            "The limit of this target is unknown, so no long prompt could be chosen.",
            "Give the nodes' URLs, or declare the context.",
        )
    if void_share(seen.trials) > VOID_SHARE:
        return result(
            Verdict.INCONCLUSIVE, f"Too many trials were void: {counted}.", "Mend what made them void."
        )
    baseline = _share(seen.baseline)
    if baseline < LEAST_BASELINE:
        return result(
            Verdict.INCONCLUSIVE,
            f"This model finds only {baseline:.0%} of short facts, so missing ones at long lengths mean nothing.",
            "Use rejection and canary, whose nonce needs less of the model.",
        )
    accepted = [one for one in seen.readings if not one.refused]
    if missed := seen.misses.why_no_pass:
        return result(Verdict.INCONCLUSIVE, missed, LOOK_AT_MISSES, warn=True)
    weak = [one for one in accepted if _below(one, baseline)]
    if weak:
        worst = min(weak, key=lambda one: (one.found / one.asked if one.asked else 0, one.tokens))
        return result(
            Verdict.INCONCLUSIVE,
            f"At {worst.tokens:,} tokens {worst.found} of {worst.asked} facts were found"
            f"{'' if worst.nonce else ' and the nonce was not'}, fewer than the model's baseline of {baseline:.0%} "
            "allows: long-context weakness or foreign pages, not shown which.",
            "Compare with a fresh process of the same build; run canary.",
            warn=True,
        )
    if any(one.asked < LEAST_ASKED or one.nonce is None for one in accepted) or not accepted:
        return result(Verdict.INCONCLUSIVE, f"Too few questions were answered ({counted}).", "Run again.")
    top = max(one.tokens for one in accepted)
    if seen.withheld:
        return result(
            Verdict.INCONCLUSIVE,
            f"Up to {top:,} tokens the own prompt was read, but {NO_CONSENT}",
            GIVE_CONSENT,
        )
    return result(
        Verdict.PASS,
        f"Up to {top:,} tokens the model answered its nonce and "
        f"{sum(one.found for one in accepted)} of {sum(one.asked for one in accepted)} facts from its own prompt "
        f"(baseline {baseline:.0%}; {counted}).{seen.misses.said}",
        "Run again after every capacity change.",
    )


def _unread_twice(seen: CoherenceSeen) -> Reading | None:
    """A length at or above the limit of which two texts were not read although short ones are. Below it a model may
    be weak: it was trained to less, and babbles (redteam cliff)."""
    if _share(seen.baseline) < LEAST_BASELINE:
        return None
    first = {one.name for one in seen.readings if not one.fresh and one.unread}
    return next(
        (
            one
            for one in seen.readings
            if one.fresh and one.unread and one.name in first and seen.above(one.tokens)
        ),
        None,
    )


def _share(baseline: Reading | None) -> float:
    if baseline is None or baseline.asked < 8 or baseline.nonce is None:
        return 0.0
    return (baseline.found + baseline.nonce) / (baseline.asked + 1)


def _below(one: Reading, baseline: float) -> bool:
    """Fewer facts than a binomial with the baseline's rate allows at 1 %."""
    return one.asked > 0 and one.found <= critical_count(one.asked, min(baseline, MOST_BASELINE), ALPHA)


def _measures(seen: CoherenceSeen) -> dict[str, Any]:
    return {
        "baseline": round(_share(seen.baseline), 3),
        "misses": seen.misses.as_measure(),
        "all_in_one_prompt": seen.together,
        "readings": [
            {
                "name": one.name,
                "tokens": one.tokens,
                "fresh": one.fresh,
                "nonce": one.nonce,
                "facts_found": one.found,
                "facts_asked": one.asked,
                "refused": one.refused,
                "by_depth": [{"depth": depth, "found": found} for depth, found in one.depths],
            }
            for one in ([seen.baseline] if seen.baseline else []) + seen.readings
        ],
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
    }
