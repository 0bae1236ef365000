"""Did the model answer from its own prompt?

A prompt holds ten facts at five depths and asks for one of them, or for the nonce at its very end. The
questions end in the beginning of the sentence that answers them, so base models complete them too.
A model that finds neither its nonce nor more than two of ten facts, twice over, did not read what was
sent. Everything between that and the baseline is a weak model as likely as a leak: not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvaudit.checks import register
from kvaudit.checks.asking import Limits, Outcome, Plan, Prober, Stop
from kvaudit.checks.contract import Audit
from kvaudit.checks.trials import (
    GIVE_CONSENT,
    NO_CONSENT,
    VOID_SHARE,
    Trial,
    denied,
    kept,
    trial,
    unaskable,
    void_share,
    voids,
    withheld,
)
from kvaudit.stats.bounds import critical_count
from kvaudit.text.markers import draw_marker
from kvaudit.text.prompts import draw_needles, draw_nonce
from kvaudit.verdict import Evidence, Result, Verdict

NEEDLES = 10
GLANCED = (0, 4, 9)
"""Facts asked first, at the beginning, middle and end; the other seven only when something is missing."""

BASELINE_TOKENS = 1024
LEAST_BASELINE = 0.8
FAILING = 2  # of ten facts found, or fewer, with the nonce missing
ANSWER_TOKENS = 24
ALPHA = 0.01
MOST_BASELINE = 0.98  # a perfect baseline of eleven questions does not prove a perfect model


@dataclass(slots=True)
class Reading:
    """One prompt text at one length: its nonce and how many of the asked facts were found."""

    name: str
    tokens: int
    fresh: int  # 0 = first text, 1 = the confirming one
    nonce: bool | None = None
    asked: int = 0
    found: int = 0
    refused: bool = False
    depths: list[tuple[float, bool]] = field(default_factory=list)

    @property
    def unread(self) -> bool:
        """Nonce missing and at most two of ten facts."""
        return self.nonce is False and self.asked >= 8 and self.found <= FAILING


@dataclass(slots=True)
class CoherenceSeen:
    limits: Limits | None
    baseline: Reading | None = None
    readings: list[Reading] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    stopped: str = ""
    unhealthy: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False


def lengths(limits: Limits, consent: bool) -> tuple[tuple[str, int], ...]:
    """The lengths that are read: half N, 0.9 N, the longest safe one, and N+1 where it may be sent."""
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None:
        return ()
    chosen = [("half", n // 2), ("0.9 N", int(0.9 * n)), ("longest", longest)]
    if consent or not limits.dangerous:
        chosen.append(("N+1", n + 1))
    return tuple(chosen)


@register
class Coherence:
    """Asks one tenant's own facts back at long lengths."""

    id = "coherence"
    title = "Answers from the own prompt"
    why = (
        "When pages of another request are attended to, the model cannot know what its own prompt said. This shows "
        "even where no marker of ours happens to lie in the pages that leak."
    )
    items = ("2", "3", "4")
    engines: frozenset[str] = frozenset()
    needs = "one tenant"
    kind = "active"

    def plan(self, prober: Prober) -> Plan:
        asked = lengths(prober.limits, prober.consent)
        limit = prober.limits.first_rejected or 0
        per_length = 1 + len(GLANCED)
        tokens = sum(per_length * length for _, length in asked if length < limit)
        baseline = (1 + NEEDLES) * BASELINE_TOKENS
        return Plan(1 + NEEDLES + per_length * len(asked), tokens + baseline, 2.0 * len(asked) * per_length)

    async def observe(self, audit: Audit) -> CoherenceSeen:
        prober = audit.prober
        if prober is None:
            return CoherenceSeen(None, unaskable=True)
        seen = CoherenceSeen(prober.limits, withheld=withheld(prober.limits, prober.consent))
        session = _Session(prober, seen)
        try:
            asked = lengths(prober.limits, prober.consent)
            shortest = min((length for _, length in asked), default=BASELINE_TOKENS)
            seen.baseline = await session.read("baseline", min(BASELINE_TOKENS, shortest), every=True)
            for name, tokens in asked:
                await session.length(name, tokens)
            seen.unhealthy = await prober.healthy()
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: CoherenceSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return _judge(seen)


class _Session:
    def __init__(self, prober: Prober, seen: CoherenceSeen) -> None:
        self._prober, self._seen = prober, seen

    async def length(self, name: str, tokens: int) -> None:
        """Read one length; a text that was not read at all is confirmed by a fresh one."""
        first = await self.read(name, tokens)
        self._seen.readings.append(first)
        if first.unread:
            again = await self.read(name, tokens, fresh=1)
            self._seen.readings.append(again)
            if again.unread:
                raise Stop(f"Stopped at {tokens:,} tokens: two texts in a row were not read.", harm=True)

    async def read(self, name: str, tokens: int, *, fresh: int = 0, every: bool = False) -> Reading:
        prober = self._prober
        marker = draw_marker(prober.draw)
        needles = draw_needles(prober.draw, without=marker.words)
        nonce = draw_nonce(prober.draw, without=(*marker.words, *(needle.word for needle in needles)))
        reading = Reading(name, tokens, fresh)
        questions: list[tuple[str, Any]] = [(nonce.question, nonce)]
        order = range(NEEDLES) if every else GLANCED
        questions += [(needles[index].question, needles[index]) for index in order]
        rest = (
            []
            if every
            else [
                (needles[index].question, needles[index]) for index in range(NEEDLES) if index not in GLANCED
            ]
        )
        while questions:
            tail, wanted = questions.pop(0)
            prompt = await prober.framed(marker, tokens, tail, needles, tenant=prober.tenants[0])
            room = prober.room(tokens, ANSWER_TOKENS)
            reply = await prober.ask(prober.tenants[0], prompt, max_tokens=room)
            found = trial(name, reply, tenant=prober.tenants[0], nonce=None, room=room, repeat=fresh)
            self._seen.trials.append(found)
            self._seen.evidence.extend(reply.evidence)
            if reply.outcome is Outcome.REFUSED:
                reading.refused = True
                return reading
            if reply.outcome is not Outcome.ANSWERED:
                continue
            right = wanted.answered(reply.text)
            if wanted is nonce:
                reading.nonce = right
            else:
                reading.asked += 1
                reading.found += right
                reading.depths.append((wanted.depth, right))
            if not right and rest:
                questions += rest
                rest = []
        return reading


DOES_NOT_PROVE = (
    "It tells whether the model read its own prompt at these lengths. A leak that adds foreign pages beside the own "
    "ones, or strikes only under load, can leave every answer right."
)


def _judge(seen: CoherenceSeen) -> Result:
    def result(
        verdict: Verdict, summary: str, next_step: str, severity: str = "", warn: bool = False
    ) -> Result:
        return Result(
            "coherence",
            verdict,
            summary,
            _measures(seen),
            next_step,
            DOES_NOT_PROVE,
            warn=warn,
            severity=severity,
            evidence=kept(seen.evidence),
        )

    if refusal := denied(seen.trials):
        return result(
            Verdict.ERROR,
            f"The entry refused the tenant's key ({refusal.status}): nothing was learnt.",
            "Check the key and run again.",
        )
    unread = _unread_twice(seen.readings)
    if unread is not None:
        return result(
            Verdict.FAIL,
            f"At {unread.tokens:,} tokens the model answered with HTTP 200 but knew neither its nonce nor more than "
            f"{unread.found} of {unread.asked} facts of its own prompt, twice: it read something else.",
            f"Stop serving prompts of {unread.tokens:,} tokens and more; run rejection and canary; see the pool check.",
            "critical",
        )
    if seen.unhealthy:
        return result(
            Verdict.FAIL,
            f"The deployment is no longer healthy after long prompts: {seen.unhealthy}",
            "Restart it and look at its memory and queues.",
            "high",
        )
    counted = f"{sum(one.outcome.valid for one in seen.trials)} valid trials, {voids(seen.trials)}"
    if seen.stopped:
        return result(Verdict.INCONCLUSIVE, f"Not read to the end: {seen.stopped}", "Run again.")
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
    if any(one.asked < len(GLANCED) or one.nonce is None for one in accepted) or not accepted:
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
        f"(baseline {baseline:.0%}; {counted}).",
        "Run again after every capacity change.",
    )


def _unread_twice(readings: Sequence[Reading]) -> Reading | None:
    for one in readings:
        if (
            one.fresh
            and one.unread
            and any(first.name == one.name and first.unread for first in readings if not first.fresh)
        ):
            return one
    return None


def _share(baseline: Reading | None) -> float:
    if baseline is None or baseline.asked < 8 or baseline.nonce is None:
        return 0.0
    return (baseline.found + baseline.nonce) / (baseline.asked + 1)


def _below(one: Reading, baseline: float) -> bool:
    """Nonce missing, or fewer facts than a binomial with the baseline's rate allows at 1 %."""
    if one.nonce is False:
        return True
    return one.asked > 0 and one.found <= critical_count(one.asked, min(baseline, MOST_BASELINE), ALPHA)


def _measures(seen: CoherenceSeen) -> dict[str, Any]:
    return {
        "baseline": round(_share(seen.baseline), 3),
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
