"""What a case has to bring out, as rules over the results of one audit.

A rule says in a few words what is wanted and, of an audit that does not bring it, what it found instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvaudit.auditor.verdict import Result, Verdict


@dataclass(frozen=True, slots=True)
class Found:
    """One audit of a case. ``lengths`` are those of the prompts where the case did what it is about, ``requests``
    and ``prompt_tokens`` what its gateway was asked; ``secrets`` are words that no report may hold in clear."""

    results: Mapping[str, Result]
    lengths: tuple[int, ...]
    requests: int
    prompt_tokens: int
    secrets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(
            f"{check} {result.verdict.value}{f' {result.severity}' if result.severity else ''}"
            for check, result in self.results.items()
        )


class Rule(Protocol):
    """``says`` is what is wanted."""

    @property
    def says(self) -> str: ...

    def broken(self, found: Found) -> str:
        """What was found instead, "" when it is as wanted."""
        ...


@dataclass(frozen=True, slots=True)
class Happened:
    """The case did what it is about at least ``least`` times. Else a verdict says nothing: nobody has looked there."""

    least: int = 1

    @property
    def says(self) -> str:
        return f"asked there {self.least} times" if self.least > 1 else ""

    def broken(self, found: Found) -> str:
        times = len(found.lengths)
        return "" if times >= self.least else f"asked there {times} times"


@dataclass(frozen=True, slots=True)
class SomeFail:
    """At least one check fails, with that severity."""

    severity: str = "critical"

    @property
    def says(self) -> str:
        return f"a fail ({self.severity})"

    def broken(self, found: Found) -> str:
        failed = [each.severity for each in found.results.values() if each.verdict is Verdict.FAIL]
        return "" if self.severity in failed else f"no fail ({self.severity})"


@dataclass(frozen=True, slots=True)
class NeverAllPass:
    """Some check does not pass, and says so by looking: an error does not count. Only of use beside a control of the
    same checks and budget that passes them all (`test_redteam` holds every case to that)."""

    says = "not all pass"

    def broken(self, found: Found) -> str:
        looked = (Verdict.FAIL, Verdict.INCONCLUSIVE)
        return "" if any(each.verdict in looked for each in found.results.values()) else "all pass"


@dataclass(frozen=True, slots=True)
class AllPass:
    """Every check passes."""

    says = "all pass"

    def broken(self, found: Found) -> str:
        return _listed(found, lambda each: each.verdict is not Verdict.PASS)


@dataclass(frozen=True, slots=True)
class NoFalseAlarm:
    """No check fails, and none gives up with an error: healthy, however odd."""

    says = "no fail, no error"

    def broken(self, found: Found) -> str:
        return _listed(found, lambda each: each.verdict in (Verdict.FAIL, Verdict.ERROR))


@dataclass(frozen=True, slots=True)
class NoneGraded:
    """No check fails with one of these severities."""

    severities: tuple[str, ...] = ("critical", "high")

    @property
    def says(self) -> str:
        return f"no fail {' or '.join(self.severities)}"

    def broken(self, found: Found) -> str:
        return _listed(found, lambda each: each.verdict is Verdict.FAIL and each.severity in self.severities)


@dataclass(frozen=True, slots=True)
class Check:
    """One check ends in one of ``verdicts`` (joined by ``|``), a fail with this ``severity`` where one is given."""

    check: str
    verdicts: str
    severity: str = ""

    @property
    def says(self) -> str:
        return f"{self.check} {self.verdicts}{f' ({self.severity})' if self.severity else ''}"

    def broken(self, found: Found) -> str:
        result = found.results[self.check]
        right = result.verdict.value in self.verdicts.split("|")
        graded = not self.severity or result.severity == self.severity
        return "" if right and graded else f"{self.check} {result.verdict.value} {result.severity}".strip()


@dataclass(frozen=True, slots=True)
class AtMostThere:
    """Asked there no more than ``times``: who does not answer is not asked for ever."""

    times: int

    @property
    def says(self) -> str:
        return f"asked there at most {self.times} times"

    def broken(self, found: Found) -> str:
        return "" if len(found.lengths) <= self.times else f"asked there {len(found.lengths)} times"


@dataclass(frozen=True, slots=True)
class NothingSent:
    """The target was not asked at all."""

    says = "nothing sent"

    def broken(self, found: Found) -> str:
        return f"{found.requests} requests sent" if found.requests else ""


@dataclass(frozen=True, slots=True)
class NothingInClear:
    """No sentence, measure or evidence of a result holds what the target gave away."""

    says = "nothing in clear"

    def broken(self, found: Found) -> str:
        if not found.secrets:
            return "nothing was given away"
        shown = [check for check, result in found.results.items() if _holds(result, found.secrets)]
        return f"in clear in {', '.join(shown)}" if shown else ""


def _holds(result: Result, secrets: tuple[str, ...]) -> bool:
    text = str(result.as_report()) + "".join(str(item.body) for item in result.evidence)
    return any(secret in text for secret in secrets)


def _listed(found: Found, wrong) -> str:
    return ", ".join(
        f"{check} {each.verdict.value} {each.severity}".strip()
        for check, each in found.results.items()
        if wrong(each)
    )
