"""`make redteam`: audits every case, prints a table, and exits with 1 where something is not as wanted.

python -m tests.redteam [NAME ...]     the cases whose names begin so; -v shows the sentences of each check,
                                       --seed=N draws prompts and leaks anew
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from resource import RUSAGE_SELF, getrusage

from tests.redteam.case import Case, known
from tests.redteam.run import audit, unmet
from tests.redteam.wanted import Found


def main(arguments: Sequence[str]) -> int:
    """1 when a case that is not open is unmet, or an open one is met and still marked."""
    names = [argument for argument in arguments if not argument.startswith("-")]
    seeds = [
        int(argument.removeprefix("--seed=")) for argument in arguments if argument.startswith("--seed=")
    ]
    chosen = [case for case in known() if not names or case.name.startswith(tuple(names))]
    chosen = [replace(case, seed=seed) for case in chosen for seed in seeds or [case.seed]]
    if not chosen:
        print(f"No case begins with {' or '.join(names)}.")
        return 1
    began, wrong, still_open = _processor(), 0, 0
    print(f"{'case':<26} {'kind':<8} {'wanted':<44} {'found':<44} ok")
    for case in chosen:
        since = _processor()
        found = audit(case)
        difference = unmet(case, found)
        mark = _mark(case, difference)
        wrong += mark.startswith("NO")
        still_open += mark == "open"
        print(
            f"{case.name:<26} {case.kind:<8} {case.says:<44} {difference or 'as wanted':<44} {mark}",
            flush=True,
        )
        if case.open:
            print(f"{'':<26} open: {case.open}")
        if "-v" in arguments:
            _show(found, _processor() - since)
    seconds = _processor() - began
    print(
        f"{len(chosen)} cases in {seconds:.0f} s of processor time: {wrong} not as wanted, {still_open} open."
    )
    return 1 if wrong else 0


def _processor() -> float:
    """Seconds of processor time so far: what a case costs does not hang on who else is at work."""
    return getrusage(RUSAGE_SELF).ru_utime


def _mark(case: Case, difference: str) -> str:
    if case.open:
        return "open" if difference else "NO: it is met now, remove its `open`"
    return "NO" if difference else "yes"


def _show(found: Found, seconds: float) -> None:
    for check, result in found.results.items():
        print(f"    {result.verdict.value:<12} {check:<11} {result.severity:<8} {result.summary}")
    print(
        f"    {found.requests} requests, {found.prompt_tokens:,} prompt tokens, {len(found.lengths)} there, {seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
