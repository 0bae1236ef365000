"""What a passive check has to say of many nodes, sorted by what it does to the verdict. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvaudit.auditor.verdict import Verdict, roll_up


@dataclass(slots=True)
class Findings:
    """Sentences without their full stop, by the verdict they lead to; warnings lead to none."""

    fails: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def verdict(self) -> Verdict:
        """The worst that was found; *pass* where nothing speaks against it."""
        verdicts = (
            [Verdict.FAIL] * bool(self.fails)
            + [Verdict.ERROR] * bool(self.errors)
            + [Verdict.INCONCLUSIVE] * bool(self.unknowns)
        )
        return roll_up(verdicts or [Verdict.PASS])

    def headline(self) -> list[str]:
        """The sentences of the worst kind found."""
        return self.fails or self.errors or self.unknowns
