"""Judges what a check's answers held of other requests, over whatever the check itself concluded. Pure.

A check concludes about what it asked. That a stranger's text came back is decided here, for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvaudit.auditor.checks.misses import FLIPS, LOOK_AT_MISSES
from kvaudit.auditor.checks.node_coverage import listed
from kvaudit.auditor.checks.prober_protocol import MARKER, Trace
from kvaudit.auditor.prober.provenance import Origin, Provenance
from kvaudit.auditor.stats.bounds import at_least, binomial_limit
from kvaudit.auditor.verdict import Result, Verdict

FIRST_AID = (
    "Stop serving prompts of {tokens:,} tokens and more now; quarantine the deployment; keep the sealed evidence; "
    "upgrade or mend what stands between client and engine; then let both independent tests pass before it takes "
    "traffic again."
)
MATCHER = (
    "A marker that was never sent to anybody was found in an answer: the matcher or its word list is at fault, and "
    "nothing was learnt about the target."
)
REPORT = "Report this with the evidence; do not trust other results of this version that search for markers."
LOOK_AT_SEALED = (
    "Open the sealed answers of this result to see whose text it is (run page, Evidence), then run canary with more "
    "rounds; a model that invents words at this length alone shows them in every such answer."
)
TALKATIVE = (
    "That what short answers say beside what they were asked ({modes}) is the model's own: text of others in every "
    "answer, the short ones too, would look the same. Compare with a fresh process of the same build that nobody else "
    "uses."
)
RUN_CANARY = "Run canary with more rounds: one word may be chance, a second one in its place is not."
TWICE = 2
GUESSED = 0.001
DOUBTED = 0.05


@dataclass(slots=True)
class RunMisses:
    """The misses of the checks so far. One that nothing explains is no objection to a check, and one in each of four
    checks is what a leak at a few prompts of a hundred looks like."""

    checks: list[str] = field(default_factory=list)
    answers: int = 0
    unexplained: int = 0
    controls: int = 0
    flipped: int = 0  # short prompts that were missed, and read when repeated
    unknown: int = 0  # missed, and nobody could repeat them

    def judged(self, result: Result) -> Result:
        """``result``, open where it would pass and the run's misses together are too many."""
        of_check = sum(self._add(way) for way in result.measures.get("misses") or [] if "tail" not in way)
        if not of_check:
            return result
        self.checks.append(result.check)
        if result.verdict is not Verdict.PASS or self.unexplained <= self._allowed:
            return result
        return _open(
            result,
            f"Not shown either way: {self.unexplained} of {self.answers} answers of {listed(self.checks)} did not give "
            "what their own prompt asked for, and asking again does not explain them. Each check forgives one; "
            f"together {self._allowed} would be chance.",
            LOOK_AT_MISSES,
        )

    def _add(self, way: Mapping[str, Any]) -> int:
        """The unexplained misses of one way to ask. Those of a phrase (``tail``) are compared with short prompts of
        their own, of which none is repeated: they do not count here."""
        if way["controls"] and way["controls_missed"] == way["controls"]:
            return 0  # nothing can be judged there
        self.answers += way["answers"]
        self.unexplained += way["unexplained"]
        self.controls += way["controls"]
        self.flipped += way["controls_flipped"]
        self.unknown += way["controls_missed"] - way["controls_explained"] - way["controls_flipped"]
        return int(way["unexplained"])

    @property
    def _allowed(self) -> int:
        asked = max(self.controls, 1)
        return max(1, binomial_limit(self.answers, self.unknown / asked + min(self.flipped / asked, FLIPS)))


def judged(
    result: Result, traces: Sequence[Trace], provenance: Provenance, guesses: Sequence[float] = ()
) -> Result:
    """``result``, worse where its answers held another request's text: *fail* for a run of marker words or for more
    foreign answers than guessing brings (``guesses``: `Registry.guesses`), *inconclusive* for fewer, or where more long
    answers than short ones consist of foreign words."""
    result = replace(result, measures={**result.measures, "provenance": _measures(traces, provenance)})
    worse = _worse(result, traces, provenance, guesses)
    return result if worse is result else _noted(worse)


def _noted(result: Result) -> Result:
    """What the run adds to the evidence of its build says what was concluded here, too."""
    evidence = result.measures.get("evidence")
    if not isinstance(evidence, Mapping):
        return result
    leaked = result.verdict is Verdict.FAIL
    noted = {"hits": max(evidence["hits"], 1)} if leaked else {"doubt": evidence["doubt"] or result.summary}
    return replace(result, measures={**result.measures, "evidence": {**evidence, **noted}})


def _worse(
    result: Result, traces: Sequence[Trace], provenance: Provenance, guesses: Sequence[float]
) -> Result:
    if result.verdict is Verdict.FAIL and result.severity == "critical":
        return result
    leaked = [one for one in traces if one.verified and not one.decoy] or _answers_of_others(traces, guesses)
    if not leaked and any(trace.decoy and trace.verified for trace in traces):
        return replace(result, verdict=Verdict.ERROR, severity="", summary=MATCHER, next=REPORT)
    if leaked:
        return replace(
            result,
            verdict=Verdict.FAIL,
            severity="critical",
            summary=_sentence(leaked),
            next=FIRST_AID.format(tokens=min(trace.tokens for trace in leaked)),
        )
    if result.verdict is not Verdict.PASS:
        return result
    if suspicious := _suspicious(traces, guesses):
        return _open(result, f"Not shown either way: {_suspicion(suspicious[0])}", RUN_CANARY)
    if exceeding := provenance.exceeding:
        return _open(
            result, f"Not shown either way: {_excess(*next(iter(exceeding.items())))}", LOOK_AT_SEALED
        )
    return _reserved(result, provenance)


def _reserved(result: Result, provenance: Provenance) -> Result:
    """A pass with what the short answers leave open: what they say besides is taken for the model's own words, and
    customers' text in *every* answer would be taken for it as well."""
    said = {mode: one for mode, one in provenance.by_mode.items() if one.talkative}
    strange = next(((mode, one) for mode, one in said.items() if one.strange), None)
    if said:
        limits = f"{result.does_not_prove} {TALKATIVE.format(modes=listed(list(said)))}".strip()
        result = replace(result, does_not_prove=limits)
    if strange is None:
        return result
    mode, one = strange
    summary = (
        f"{result.summary} {one.foreign_controls} of {len(one.controls)} short answers ({mode}) hold words of no "
        "prompt that no other one repeats: whose they are is not known."
    )
    return replace(result, warn=True, summary=summary)


def _answers_of_others(traces: Sequence[Trace], guesses: Sequence[float]) -> list[Trace]:
    """Foreign nonces and facts where two different ones came back, and more of them than guesses among the words of
    the list would hit: a weak model that says some noun names a live one now and then."""
    found = [trace for trace in traces if trace.kind != MARKER]
    if len({trace.words for trace in found}) < TWICE:
        return []
    return found if _by_chance(found, guesses) < GUESSED else []


def _suspicious(traces: Sequence[Trace], guesses: Sequence[float]) -> list[Trace]:
    """What forbids a pass: pieces of markers, and words of others that guessing would hardly hit. After hundreds of
    prompts half of the list is live, and a word that was missed names one of them as often as not."""
    others = [trace for trace in traces if trace.kind != MARKER]
    unlikely = bool(others) and _by_chance(others, guesses) < DOUBTED
    return [trace for trace in traces if trace.kind == MARKER or unlikely]


def _by_chance(found: Sequence[Trace], guesses: Sequence[float]) -> float:
    """The chance that guesses hit so many live words."""
    return at_least(len(found), max(len(guesses), len(found)), max(guesses, default=0.0))


def _sentence(leaked: Sequence[Trace]) -> str:
    first = min(leaked, key=lambda trace: trace.planted_by == trace.read_by)
    whose = (
        f"Text planted by tenant {first.planted_by} appeared in tenant {first.read_by}'s answer"
        if first.planted_by != first.read_by
        else f"Text of an earlier request of tenant {first.read_by} appeared in a later answer of the same tenant"
    )
    what = (
        f"{first.run} of 6 marker words in a row"
        if first.kind == MARKER
        else f"{len(leaked)} answers gave what another request had asked for"
    )
    where = "" if first.where == "text" else f", not in its text but in its {first.where}"
    since = " It was planted in an earlier run." if first.earlier_run else ""
    return f"{whose} to a prompt of {first.tokens:,} tokens: {what}{where}.{since}"


def _suspicion(trace: Trace) -> str:
    if trace.kind == MARKER:
        whose = "a marker that nobody was sent" if trace.decoy else "another request's marker"
        return (
            f"{trace.run} words of {whose} came back in a row in the answer to a prompt of "
            f"{trace.tokens:,} tokens, and four decide."
        )
    return f"the answer to a prompt of {trace.tokens:,} tokens gave the {trace.kind} of another request."


def _excess(mode: str, origin: Origin) -> str:
    return (
        f"{origin.foreign} of {len(origin.answers)} answers ({mode}) began with words that neither their prompts nor "
        f"the model's short answers hold, of the short ones {origin.foreign_controls} of {len(origin.controls)}. Whose "
        "words they are is not known."
    )


def _open(result: Result, summary: str, next_step: str) -> Result:
    return replace(
        result,
        verdict=Verdict.INCONCLUSIVE,
        severity="",
        warn=True,
        summary=f"{summary} This is not a pass.",
        next=next_step,
    )


def _measures(traces: Sequence[Trace], provenance: Provenance) -> dict[str, Any]:
    """Own, foreign and unknown of the check's answers, by the way they were asked; only counts and our own words."""
    return {
        "by_mode": {
            mode: {
                "answers": len(origin.answers),
                "own": origin.own,
                "others": origin.others,
                "foreign_words": origin.foreign,
                "controls": len(origin.controls),
                "controls_foreign_words": origin.foreign_controls,
            }
            for mode, origin in provenance.by_mode.items()
        },
        "traces": [
            {
                "kind": trace.kind,
                "where": trace.where,
                "planted_by": trace.planted_by,
                "read_by": trace.read_by,
                "words": " ".join(trace.words),
                "tokens": trace.tokens,
                "verified": trace.verified,
            }
            for trace in traces[:100]
        ],
    }
