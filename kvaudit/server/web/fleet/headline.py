"""Whether any tenant is at risk right now: the sentence that the first page begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.web.fleet.page import FleetRow


@dataclass(frozen=True, slots=True)
class Headline:
    verdict: Verdict
    sentence: str
    rest: Sequence[tuple[Verdict, str]]  # what the others are, to be looked at one by one
    at_risk: Sequence[FleetRow]
    total: int


def headline(rows: Sequence[FleetRow]) -> Headline:
    """Whether anybody is at risk, in one sentence with numbers. Unknown is said as unknown."""
    total = len(rows)
    by: dict[Verdict, list[FleetRow]] = {verdict: [] for verdict in Verdict}
    for row in rows:
        by[row.status.verdict].append(row)
    fails = sorted(by[Verdict.FAIL], key=lambda row: row.slug)
    errors, unknowns, passes = (len(by[v]) for v in (Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.PASS))
    rest = [
        (which, text)
        for which, count, text in (
            (Verdict.INCONCLUSIVE, unknowns, f"{unknowns:,} unknown"),
            (Verdict.ERROR, errors, f"{errors:,} could not be audited"),
            (Verdict.PASS, passes, f"{passes:,} passed every planned check"),
        )
        if count
    ]
    of = f"of {total:,} deployment{'' if total == 1 else 's'}"
    if fails:
        verdict = Verdict.FAIL
        sentence = f"{len(fails):,} {of} {_is(len(fails))} at risk"
    elif unknowns or errors:
        verdict = Verdict.ERROR if errors and not unknowns else Verdict.INCONCLUSIVE
        sentence = (
            f"Nobody is known to be at risk, but {unknowns + errors:,} {of} {_is(unknowns + errors)} unknown"
        )
    else:
        verdict = Verdict.PASS
        sentence = f"Nothing was found against any of {total:,} deployment{'' if total == 1 else 's'}"
    return Headline(verdict, sentence, rest, fails, total)


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
