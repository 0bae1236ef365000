"""What a verdict counts of a run under load, and the p-values that it decides by."""

from __future__ import annotations

from collections.abc import Iterable

from kvaudit.auditor.checks.concurrency.load import CONTROLS, UNEQUAL
from kvaudit.auditor.checks.concurrency.seen import ConcurrencySeen
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.stats.bounds import fisher_greater, upper_bound


def nonce_loss(seen: ConcurrencySeen) -> float:
    """Fisher's one-sided p that the unequal arms, pooled, lose their nonce more often than the controls."""
    bad, all_bad = without_nonce(seen.trials, UNEQUAL)
    good, all_good = without_nonce(seen.trials, CONTROLS)
    return fisher_greater(bad, all_bad, good, all_good)


def empty(trials: Iterable[Trial], arms: Iterable[str]) -> tuple[int, int]:
    """(answers without text, answers)."""
    answers = [one for one in of_arms(trials, arms) if one.outcome in (Outcome.ANSWERED, Outcome.EMPTY)]
    return sum(one.outcome is Outcome.EMPTY for one in answers), len(answers)


def text_loss(seen: ConcurrencySeen) -> float:
    """Fisher's one-sided p that the unequal arms, pooled, come back without text more often than the controls."""
    return fisher_greater(*empty(seen.trials, UNEQUAL), *empty(seen.trials, CONTROLS))


def visit_loss(seen: ConcurrencySeen) -> tuple[int, float]:
    """Facts missed by the controls of all visits, and Fisher's p that returning sessions miss more."""
    found, asked = total(one.after for one in seen.visits)
    control = [pair for one in seen.visits for pair in (one.before, one.fresh)]
    known, all_known = total(control)
    return all_known - known, fisher_greater(asked - found, asked, all_known - known, all_known)


def judged_under_load(seen: ConcurrencySeen) -> int:
    """Answers that overlapped with others and could be judged: what a bound may count."""
    return without_nonce(seen.trials, UNEQUAL)[1]


def bound(seen: ConcurrencySeen) -> float:
    """Upper 95 % bound on visible mix-ups per answered request, corrected for the share of answers
    that name their own marker."""
    surfacing = seen.own_markers / seen.own_asked if seen.own_asked else 0.0
    return min(1.0, upper_bound(0, judged_under_load(seen)) / surfacing) if surfacing else 1.0


def of_arms(trials: Iterable[Trial], arms: Iterable[str]) -> list[Trial]:
    wanted = set(arms)
    return [one for one in trials if one.name in wanted]


def counted(trials: Iterable[Trial]) -> list[Trial]:
    return [one for one in trials if one.outcome is not Outcome.CANCELLED]


def valid(trials: Iterable[Trial], arms: Iterable[str]) -> int:
    return sum(one.outcome.valid for one in of_arms(trials, arms))


def ended(trials: Iterable[Trial]) -> int:
    """Answered or cut off: whatever ran beside the others in the unequal arms."""
    return sum(one.outcome.valid or one.outcome is Outcome.CANCELLED for one in of_arms(trials, UNEQUAL))


def without_nonce(trials: Iterable[Trial], arms: Iterable[str]) -> tuple[int, int]:
    """(answers without their nonce, answers that could be judged). An empty one holds nobody's words: `empty`."""
    answered = (one for one in of_arms(trials, arms) if one.outcome is Outcome.ANSWERED)
    judged = [one for one in answered if one.nonce is not None]
    return sum(one.nonce is False for one in judged), len(judged)


def with_nonce(trials: Iterable[Trial], arms: Iterable[str]) -> tuple[int, int]:
    lost, judged = without_nonce(trials, arms)
    return judged - lost, judged


def total(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    listed = list(pairs)
    return sum(found for found, _ in listed), sum(asked for _, asked in listed)


def controls_asked(seen: ConcurrencySeen) -> int:
    return total(pair for one in seen.visits for pair in (one.before, one.fresh))[1]


def most_filler(seen: ConcurrencySeen) -> int:
    return max((one.filler_tokens for one in seen.visits), default=0)


def cut(seen: ConcurrencySeen) -> int:
    return sum(one.outcome is Outcome.CANCELLED for one in seen.trials)


def least_peak(seen: ConcurrencySeen) -> float:
    peaks = [use.peak for arm, use in seen.use.items() if arm in UNEQUAL and use.peak is not None]
    return min(peaks, default=0.0)
