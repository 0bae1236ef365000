"""Says what accumulated evidence comes to, in sentences and as plain JSON values. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kvaudit.auditor.stats.accumulated import TARGET, Accumulated, Rule
from kvaudit.auditor.stats.run_evidence import DRAINED, NEWCOMER, PLACES, PRODUCTION
from kvaudit.auditor.verdict import Verdict

BRINGS_BOUNDARY = (
    "kvaudit qualify on a singly addressed node before it takes traffic (after its start, or drained) brings the "
    "boundary in minutes."
)
BRINGS_NIGHTS = "The nightly plan with the canary brings production nights."
SMALL_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES_SAID = {PRODUCTION: "in production", NEWCOMER: "on newcomers", DRAINED: "on drained replicas"}


def verdict_of(state: Accumulated) -> Verdict:
    if state.hit_at is not None:
        return Verdict.FAIL
    return Verdict.PASS if state.green else Verdict.INCONCLUSIVE


def sentence(state: Accumulated) -> str:
    """What is shown, or what is missing and how far the way is."""
    if state.hit_at is not None:
        return (
            f"A planted marker reached another request on {state.hit_at:%d %B %Y}, and nobody has recorded a fix "
            "since: clean runs do not take that back."
        )
    if not state.build:
        return "Not shown: nobody knows which build serves, and evidence counts for one build only."
    if state.green:
        return f"{_bound(state)} {_sources(state)}{_shows(state)}"
    return f"Not green yet: {_lacks(state)}. {_bound(state)}{_forecast(state)}"


def next_step(state: Accumulated) -> str:
    """The command or the step that brings what is missing."""
    if state.hit_at is not None:
        return "Record the fix in the incident; the evidence of this build then starts again."
    if not state.build:
        return "Let an audit read the nodes' version and arguments, so that the canary knows its build."
    keys = {rule.key for rule in state.missing}
    steps = [BRINGS_BOUNDARY] if keys & {"boundary", "total"} else []
    steps += [BRINGS_NIGHTS] if "fresh" in keys else []
    return " ".join(steps) or "Go on with the nightly plan: evidence older than 30 days does not count."


def as_measure(state: Accumulated) -> dict[str, Any]:
    """What a page shows of it."""
    return {
        "verdict": verdict_of(state).value,
        "summary": sentence(state),
        "next": next_step(state),
        "build": state.build,
        "build_said": state.build_said,
        "bound": round(state.bound, 5),
        "bound_of_each_stratum": round(state.bound_of_each, 5),
        "bound_of_replicas": round(state.replica_bound, 5),
        "bound_of_runs": round(state.run_bound, 5),
        "needs": [
            {"key": rule.key, "has": round(state.has(rule), 2), "needs": rule.needs, "days": rule.window.days}
            for rule in state.rules
        ],
        "strata": [
            {"stratum": name, "trials": round(trials, 2), "bound": round(state.bound_of(trials), 5)}
            for name, trials in state.strata.items()
        ],
        "places": {place: round(state.places.get(place, 0.0), 2) for place in PLACES},
        "replicas": len([name for name in state.replicas if name]),
        "runs": len(state.counted),
        "hits": state.hits,
        "doubt": state.doubt,
        "a_night": round(sum(state.night.values()), 2),
        "nights": state.nights,
        "nights_to_show": _rounded(state.nights_to_show()),
        "expires_at": _moment(state.expires_at),
    }


def percent(share: float) -> str:
    return f"{share:.0%}" if round(share, 3) >= 0.1 else f"{share:.1%}"


def counted(number: int, one: str) -> str:
    name = one if number == 1 else f"{one}s"
    return f"{SMALL_NUMBERS[number] if number < len(SMALL_NUMBERS) else f'{number:,}'} {name}"


def _bound(state: Accumulated) -> str:
    if state.bound >= 1:
        return "So far it bounds nothing."
    dear = f" ({counted(state.hits, 'hit')} on this build make it dearer)" if state.hits else ""
    return (
        f"Fewer than {percent(state.bound)} of requests drawn like these leak (95 % confidence, mean of 30 days, "
        f"{_replicas(state)}){dear}."
    )


def _replicas(state: Accumulated) -> str:
    named = len([name for name in state.replicas if name])
    if not named:
        return "on whichever replica answered"
    more = " and others that nobody could tell apart" if "" in state.replicas else ""
    return f"on {counted(named, 'replica')}{more}"


def _sources(state: Accumulated) -> str:
    from_where = [
        f"{state.places[place]:.1f} {PLACES_SAID[place]}" for place in PLACES if state.places.get(place)
    ]
    strata = state.strata
    return (
        f"{state.total:.1f} effective trials in {counted(len(state.counted), 'run')} ({', '.join(from_where)}), "
        f"{strata['boundary']:.1f} of them at the boundary."
    )


def _shows(state: Accumulated) -> str:
    nights = state.nights_to_show()
    if nights is None:
        return ""
    within = counted(max(1, -int(-nights // 1)), "night")
    return f" A {percent(TARGET)} leak that starts today shows within {within}."


def _lacks(state: Accumulated) -> str:
    """The doubt first: it is what no number mends."""
    said = [f"a miss that nothing explains stands ({state.doubt.rstrip('.')})"] if state.doubt else []
    for rule in state.missing:
        said.append(_RULES_SAID[rule.key].format(has=state.has(rule), needs=_needs(rule)))
    return ", and ".join(said)


_RULES_SAID = {
    "total": "all lengths together have {has:.1f} of {needs} effective trials on this build",
    "boundary": "the boundary has {has:.1f} of {needs} effective trials on this build",
    "fresh": "production has {has:.1f} of {needs} in the last 7 days",
}


def _needs(rule: Rule) -> str:
    return f"{rule.needs:g}"


def _forecast(state: Accumulated) -> str:
    if not state.counted or not sum(state.night.values()):
        return ""
    if state.nights is None:
        return " At this budget it is not reached within 30 days."
    return f" Green is expected in {counted(state.nights, 'night')} at this budget."


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
