"""Defines the four verdicts, their roll-up and exit codes, and the result that carries one.

Unknown is never pass: whatever cannot be understood as a verdict is an *error*, and whatever was
required but is missing makes a roll-up *inconclusive*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

REPORT_SCHEMA = "kvaudit.report/1"


class Verdict(StrEnum):
    """What a check may conclude; there is no fifth verdict, *warn* is a flag beside it."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"

    @classmethod
    def parse(cls, value: object) -> Verdict:
        """Read a stored or received verdict; null, unknown or unparsable reads as error."""
        try:
            return cls(value)  # type: ignore[arg-type]
        except ValueError:
            return cls.ERROR

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]


EXIT_CODES: Mapping[Verdict, int] = {
    Verdict.PASS: 0,
    Verdict.FAIL: 1,
    Verdict.INCONCLUSIVE: 2,
    Verdict.ERROR: 3,
}

WORST_FIRST = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.PASS)
"""The order in which one verdict decides a roll-up."""

SEVERITIES = ("critical", "high", "medium", "low")
"""How grave a *fail* is, gravest first; "" where the check does not grade it."""


def roll_up(verdicts: Iterable[object], *, missing: bool = False) -> Verdict:
    """Combine verdicts: any fail, else any error, else any inconclusive or missing, else pass.

    ``missing`` says that a required check was skipped, stale, expired or never run.
    No verdicts at all is inconclusive: nothing was learnt.
    """
    seen = {Verdict.parse(verdict) for verdict in verdicts}
    worst = next((verdict for verdict in WORST_FIRST if verdict in seen), Verdict.INCONCLUSIVE)
    return Verdict.INCONCLUSIVE if worst is Verdict.PASS and missing else worst


def worse(first: Verdict, second: Verdict) -> Verdict:
    """The verdict that wins when two sources disagree."""
    return roll_up((first, second))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece of evidence: redacted bytes, named by their own SHA-256 (hex).

    ``kind`` is ``response``, ``request`` or ``reading``; ``source`` says where it came from,
    for instance ``GET http://10.0.0.7:30000/server_info``. ``body`` is None once it has been
    stored elsewhere and only the digest travels.
    """

    kind: str
    sha256: str
    source: str
    body: bytes | None = field(default=None, repr=False)
    content_type: str = ""

    def as_report(self) -> dict[str, str]:
        return {"kind": self.kind, "sha256": self.sha256, "source": self.source}


@dataclass(frozen=True, slots=True)
class Result:
    """What one check concluded about one target.

    ``summary`` is one sentence that a person on call understands, ``next`` what to do now, and
    ``does_not_prove`` the limit of the conclusion. ``measures`` holds plain JSON values.
    """

    check: str
    verdict: Verdict
    summary: str
    measures: Mapping[str, Any] = field(default_factory=dict)
    next: str = ""
    does_not_prove: str = ""
    warn: bool = False
    severity: str = ""  # critical, high, medium or low where the check grades a fail
    evidence: tuple[Evidence, ...] = ()

    def as_report(self) -> dict[str, Any]:
        """The result as it stands in a ``kvaudit.report/1`` document."""
        report: dict[str, Any] = {
            "check": self.check,
            "verdict": self.verdict.value,
            "warn": self.warn,
            "summary": self.summary,
            "measures": dict(self.measures),
            "next": self.next,
            "does_not_prove": self.does_not_prove,
            "evidence": [item.as_report() for item in self.evidence],
        }
        if self.severity:
            report["severity"] = self.severity
        return report
