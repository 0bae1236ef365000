"""Judges how many of its own facts a model found. Pure: no clock, no network. `RULES` says what decides before what
(checks.md 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks.misses import LOOK_AT_MISSES
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    GIVE_CONSENT,
    NO_CONSENT,
    RESTART,
    VOID_SHARE,
    Trial,
    key_refused,
    needed,
    result_builder,
    unfinished,
    unhealthy_after,
    void_share,
    voids,
)
from kvaudit.auditor.checks.ways import asked_as, ways_asked
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
    mode: str = ""  # the route by which it was asked

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
    baselines: dict[str, Reading] = field(default_factory=dict)  # by the route
    planned: int = 0  # lengths to be read
    together: set[str] = field(
        default_factory=set
    )  # routes where the model answers all questions of one prompt
    readings: list[Reading] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    misses: MissesByWay = field(default_factory=MissesByWay)
    stopped: str = ""
    unhealthy: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False

    def above(self, tokens: int) -> bool:
        """Whether a prompt of this length should be refused; False while the limit is not known."""
        limit = self.limits.first_rejected if self.limits else None
        return limit is not None and tokens >= limit

    def baseline(self, one: Reading) -> float:
        """Share of short facts that the model finds where it is asked by the same route."""
        return share(self.baselines.get(one.mode))

    @property
    def told(self) -> list[Reading]:
        """Readings by a route where short facts are found: only there missing ones mean anything."""
        return [one for one in self.readings if self.baseline(one) >= LEAST_BASELINE]


class Texts:
    """What was read of the texts, by routes where short ones are read."""

    def __init__(self, seen: CoherenceSeen) -> None:
        self.seen = seen
        self.counted = f"{sum(one.outcome.valid for one in seen.trials)} valid trials, {voids(seen.trials)}"
        self.accepted = [one for one in seen.told if not one.refused]

    @property
    def best(self) -> float:
        """Share of short facts that are found by the best route."""
        return max((share(one) for one in self.seen.baselines.values()), default=0.0)

    @property
    def top(self) -> int:
        return max(one.tokens for one in self.accepted)

    @property
    def unread_twice(self) -> Reading | None:
        """A length at or above the limit of which two texts were not read although short ones are. Below it a model
        may be weak: it was trained to less, and babbles (redteam cliff)."""
        told = self.seen.told
        first = {(one.name, one.mode) for one in told if not one.fresh and one.unread}
        for one in told:
            if one.fresh and one.unread and (one.name, one.mode) in first and self.seen.above(one.tokens):
                return one
        return None

    @property
    def weak(self) -> list[Reading]:
        """With fewer facts than a binomial with the baseline's rate allows at 1 %."""
        return [one for one in self.accepted if _below(one, self.seen.baseline(one))]


def _not_read(texts: Texts) -> str:
    one = texts.unread_twice
    if one is None:
        return ""
    how = f" (asked as {one.mode})" if len(texts.seen.baselines) > 1 else ""
    return (
        f"At {one.tokens:,} tokens the model answered with HTTP 200 but knew neither its nonce nor more than "
        f"{one.found} of {one.asked} facts of its own prompt, twice{how}: it read something else."
    )


def _first_aid(texts: Texts) -> str:
    tokens = texts.unread_twice.tokens if texts.unread_twice else 0
    return (
        f"Stop serving prompts of {tokens:,} tokens and more; run rejection and canary; see the pool check."
    )


def _stopped(texts: Texts) -> str:
    seen = texts.seen
    if not seen.stopped:
        return ""
    read = len({(one.name, one.mode) for one in seen.readings})
    return f"Not read to the end: {unfinished(read, seen.planned, 'lengths', seen.stopped)}"


def _no_limit(texts: Texts) -> str:
    if texts.seen.readings:
        return ""
    return "The limit of this target is unknown, so no long prompt could be chosen."


def _void(texts: Texts) -> str:
    if void_share(texts.seen.trials) <= VOID_SHARE:
        return ""
    return f"Too many trials were void: {texts.counted}."


def _weak_model(texts: Texts) -> str:
    if texts.best >= LEAST_BASELINE:
        return ""
    return f"This model finds only {texts.best:.0%} of short facts, so missing ones at long lengths mean nothing."


def _weak(texts: Texts) -> str:
    if not texts.weak:
        return ""
    worst = min(texts.weak, key=lambda one: (one.found / one.asked if one.asked else 0, one.tokens))
    return (
        f"At {worst.tokens:,} tokens {worst.found} of {worst.asked} facts were found"
        f"{'' if worst.nonce else ' and the nonce was not'}, fewer than the model's baseline of "
        f"{texts.seen.baseline(worst):.0%} allows: long-context weakness or foreign pages, not shown which."
    )


def _too_few(texts: Texts) -> str:
    answered = all(one.asked >= LEAST_ASKED and one.nonce is not None for one in texts.accepted)
    return "" if texts.accepted and answered else f"Too few questions were answered ({texts.counted})."


def _withheld(texts: Texts) -> str:
    if not texts.seen.withheld:
        return ""
    return f"Up to {texts.top:,} tokens the own prompt was read, but {NO_CONSENT}"


def _read(texts: Texts) -> str:
    weak = [mode for mode, one in texts.seen.baselines.items() if share(one) < LEAST_BASELINE]
    unheard = (
        f" Nothing was judged as {' or '.join(weak)}: too few short facts are found there." if weak else ""
    )
    return (
        f"Up to {texts.top:,} tokens the model answered its nonce and "
        f"{sum(one.found for one in texts.accepted)} of {sum(one.asked for one in texts.accepted)} facts from its own "
        f"prompt (baseline {texts.best:.0%}; {texts.counted}).{texts.seen.misses.said}{asked_as(texts.seen.trials)}"
        f"{unheard}"
    )


FAIL, OPEN, PASS = Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS

RULES: tuple[Rule[Texts], ...] = (
    Rule("key refused", Verdict.ERROR, lambda texts: key_refused(texts.seen.trials), CHECK_THE_KEY),
    # What was seen stands, however the reading went on.
    Rule("read something else", FAIL, _not_read, _first_aid, "critical"),
    Rule("unhealthy", FAIL, lambda texts: unhealthy_after("long prompts", texts.seen.unhealthy), RESTART, "high"),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("stopped", OPEN, _stopped, lambda texts: needed(texts.seen.stopped)),
    Rule("no limit", OPEN, _no_limit, "Give the nodes' URLs, or declare the context."),
    Rule("void", OPEN, _void, "Mend what made them void."),
    Rule("weak model", OPEN, _weak_model, "Use rejection and canary, whose nonce needs less of the model."),
    Rule("misses", OPEN, lambda texts: texts.seen.misses.why_no_pass, LOOK_AT_MISSES, warn=True),
    Rule("weak at a length", OPEN, _weak, "Compare with a fresh process of the same build; run canary.", warn=True),
    Rule("too few", OPEN, _too_few, "Run again."),
    Rule("withheld", OPEN, _withheld, GIVE_CONSENT),
    Rule("read", PASS, _read, "Run again after every capacity change."),
)  # fmt: skip


def judge_coherence(seen: CoherenceSeen) -> Result:
    """The verdict of checks.md 5."""
    result = result_builder("coherence", _measures(seen), DOES_NOT_PROVE, seen.evidence)
    return first_that_holds(RULES, Texts(seen), result)


def share(baseline: Reading | None) -> float:
    if baseline is None or baseline.asked < 8 or baseline.nonce is None:
        return 0.0
    return (baseline.found + baseline.nonce) / (baseline.asked + 1)


def _below(one: Reading, baseline: float) -> bool:
    return one.asked > 0 and one.found <= critical_count(one.asked, min(baseline, MOST_BASELINE), ALPHA)


def _measures(seen: CoherenceSeen) -> dict[str, Any]:
    return {
        "baseline": round(Texts(seen).best, 3),
        "ways": ways_asked(seen.trials),
        "misses": seen.misses.as_measure(),
        "all_in_one_prompt": sorted(seen.together),
        "readings": [
            {
                "name": one.name,
                "tokens": one.tokens,
                "mode": one.mode,
                "fresh": one.fresh,
                "nonce": one.nonce,
                "facts_found": one.found,
                "facts_asked": one.asked,
                "refused": one.refused,
                "by_depth": [{"depth": depth, "found": found} for depth, found in one.depths],
            }
            for one in (*seen.baselines.values(), *seen.readings)
        ],
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
    }
