"""Evaluates an item of the checklist for a deployment at a moment. Pure: rows in, cells out; nothing is stored.

A check's verdict counts while it has not expired; missing and expired are *inconclusive*. An
attestation or a waiver is a view on that verdict, never a change of it, and neither hides a leak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.state.bulk_reads import when
from kvaudit.server.checklists.items import Item


class Status(StrEnum):
    """What a cell shows: the four verdicts and three views on them."""

    PASS = "pass"
    ATTESTED = "attested"
    WAIVED = "waived"
    NOT_APPLICABLE = "not applicable"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    FAIL = "fail"

    @property
    def complies(self) -> bool | None:
        """Truly or by somebody's word; None where there is nothing to comply with."""
        if self is Status.NOT_APPLICABLE:
            return None
        return self in _COMPLIES


_COMPLIES = frozenset({Status.PASS, Status.ATTESTED, Status.WAIVED})


def proves_leak(check: str, severity: str) -> bool:
    """Whether a fail of this check, graded so, is another tenant's text or state in an answer."""
    return checks.meaning(check, severity) is Meaning.LEAK


class CheckInterval(NamedTuple):
    """One interval of a check, as it stood: columns of `CheckState`. Times are UTC microseconds since
    1970, since a fleet has thousands of them and a page shows few (`when` makes one a datetime)."""

    since: int
    closed_at: int | None
    deployment_id: int
    check: str
    verdict: str
    warn: bool
    severity: str
    expires_at: int
    expired_by: str
    run_id: int
    recalled: str | None = None  # of a state that learnt nothing after a fail: the severity of that
    bound: str | None = None  # of a pass that bounds how rare leaks are: "12%"

    @property
    def leaks(self) -> bool:
        """Whether its last word was a verified leak: expiry does not take that back."""
        return self.verdict == Verdict.FAIL and proves_leak(self.check, self.severity)


class Claim(NamedTuple):
    """An attestation or a waiver in force at the moment that is asked about, of a deployment or a team. Times are
    microseconds, ``author`` and ``approver`` (of a waiver) names of users."""

    valid_from: int
    valid_to: int | None
    pk: int
    item: str
    deployment_id: int | None
    team_id: int | None
    expires_at: int
    author: str
    approver: str = ""


@dataclass(slots=True)
class Cell:
    """One item of one deployment. ``verdict`` is what the checks alone say (None: not applicable),
    ``status`` what is shown. ``says`` are the states it rests on. ``began`` and ``ends`` are `since`
    and `until` in microseconds."""

    item: Item
    status: Status
    verdict: Verdict | None
    began: int
    ends: int | None = None
    intervals: Sequence[CheckInterval] = ()
    missing: Sequence[str] = ()
    expired: Sequence[CheckInterval] = ()
    warn: bool = False
    leak: bool = False
    attestation: Claim | None = None
    waiver: Claim | None = None  # in force for this cell, whether it changes anything or not

    @property
    def since(self) -> datetime:
        """When it began to stand as it does."""
        return when(self.began)

    @property
    def until(self) -> datetime | None:
        """When it ends by itself; None when it does not."""
        return None if self.ends is None else when(self.ends)

    @property
    def failing(self) -> list[CheckInterval]:
        gone = set(self.expired)
        return [
            interval
            for interval in self.intervals
            if interval.verdict == Verdict.FAIL and interval not in gone
        ]

    @property
    def reason(self) -> str:
        """A sentence without a full stop: why the cell shows what it shows."""
        if self.status is Status.NOT_APPLICABLE:
            return f"only for {self.item.applies_to} deployments"
        if self.verdict is Verdict.PASS:
            bound = next(
                (f"; fewer than {each.bound} of requests leak" for each in self.intervals if each.bound), ""
            )
            return f"{', '.join(self.item.checks)} passed{bound}"
        parts = []
        if self.status is Status.WAIVED:
            parts.append("waived")
        elif self.status is Status.ATTESTED:
            parts.append("by attestation")
        if self.leak and self.waiver is not None:
            parts.append("a verified leak cannot be waived")
        gone = set(self.expired)
        held: dict[str, list[str]] = {}
        for interval in self.intervals:
            if interval not in gone and interval.verdict != Verdict.PASS:
                word = (
                    "failing" if interval.verdict == Verdict.FAIL else Verdict.parse(interval.verdict).value
                )
                held.setdefault(word, []).append(interval.check)
        parts += [f"{word}: {', '.join(dict.fromkeys(names))}" for word, names in held.items()]
        causes: dict[str, list[str]] = {}
        for interval in self.expired:
            causes.setdefault(
                f"expired by {interval.expired_by}" if interval.expired_by else "expired", []
            ).append(interval.check)
        parts += [f"{cause}: {', '.join(dict.fromkeys(names))}" for cause, names in causes.items()]
        if self.missing:
            parts.append(f"never ran: {', '.join(self.missing)}")
        if not self.item.checks and self.status is Status.INCONCLUSIVE:
            parts.append("not attested")
        return "; ".join(parts)


RANK = {Verdict.PASS.value: 0, Verdict.INCONCLUSIVE.value: 1, Verdict.ERROR.value: 2, Verdict.FAIL.value: 3}
"""How bad a state is. What nobody can read as a verdict is an error (2), as everywhere, and what has expired is
not known (1)."""
_VERDICTS = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR, Verdict.FAIL)
_STATUSES = (Status.PASS, Status.INCONCLUSIVE, Status.ERROR, Status.FAIL)


def by_ranks(item: Item, ranks: Mapping[str, int], mode: str) -> Status:
    """What `evaluate` comes to where nobody claims anything of the item. ``ranks`` are the worst of the checks that
    have states: one that never ran is not known."""
    if item.applies_to and mode and mode != item.applies_to:
        return Status.NOT_APPLICABLE
    return _STATUSES[max([ranks.get(check, 1) for check in item.checks], default=1)]


def evaluate(
    item: Item,
    intervals: Mapping[str, Sequence[CheckInterval]],
    moment: int,
    *,
    created_at: int,
    attestation: Claim | None = None,
    waiver: Claim | None = None,
    mode: str = "",
) -> Cell:
    """Evaluate one item. ``intervals`` maps a check to its open states (the deployment's, and any of single nodes; none
    where it never ran); ``mode`` is disaggregated, unified or "" where neither was declared nor read. What failed and
    has learnt nothing since, neither claim outweighs. ``moment`` and ``created_at`` are microseconds.

    Since when: of a pass, when the last of its checks came to pass; of anything else, when the first
    check that now decides began to say so. A check expired when it expired; one that never ran is
    missing since the deployment is known.
    """
    if item.applies_to and mode and mode != item.applies_to:
        return Cell(item, Status.NOT_APPLICABLE, None, created_at)
    cell = _by_checks(item, intervals, moment, created_at)
    cell.waiver = waiver
    if cell.verdict is Verdict.PASS:
        return cell
    standing = [interval for interval in cell.intervals if interval.recalled is not None]
    if any(proves_leak(interval.check, interval.recalled or "") for interval in standing):
        cell.leak = True
    if attestation is not None and item.attestable:
        cell.attestation = attestation
        # An expired fail is still the last thing that was learnt: somebody's word does not outweigh it.
        if not standing and not any(interval.verdict == Verdict.FAIL for interval in cell.intervals):
            return _claimed(cell, Status.ATTESTED, attestation)
    if waiver is not None and not cell.leak:
        return _claimed(cell, Status.WAIVED, waiver)
    return cell


def _by_checks(
    item: Item, intervals: Mapping[str, Sequence[CheckInterval]], moment: int, created_at: int
) -> Cell:
    """What the checks alone say: `verdict.roll_up` of those that hold, in one pass over few states,
    since a page computes thousands of cells."""
    rests_on: list[CheckInterval] = []
    missing: list[str] = []
    expired: list[CheckInterval] = []
    began = [0, created_at, created_at, created_at]  # by rank
    worst, warn, leak, ends = 0, False, False, None
    for check in item.checks:
        states = intervals.get(check)
        if not states:
            missing.append(check)
            continue
        for state in states:
            rests_on.append(state)
            begun, expires = state.since, state.expires_at
            rank = RANK.get(state.verdict, 2)
            if rank == 3 and state.leaks:
                leak = True
            if expires <= moment:
                expired.append(state)
                rank, begun = 1, expires
            elif ends is None or expires < ends:
                ends = expires
            if state.warn:
                warn = True
            if rank > worst:
                worst, began[rank] = rank, begun
            elif rank == worst and (begun > began[0] if rank == 0 else begun < began[rank]):
                began[rank] = begun
    if worst <= 1 and (missing or not rests_on):
        worst, began[1] = 1, created_at
    return Cell(
        item=item,
        status=_STATUSES[worst],
        verdict=_VERDICTS[worst],
        began=began[worst],
        ends=ends if worst == 0 else None,
        intervals=rests_on,
        missing=missing,
        expired=expired,
        warn=warn,
        leak=leak,
    )


def _claimed(cell: Cell, status: Status, claim: Claim) -> Cell:
    cell.status, cell.ends = status, claim.expires_at
    cell.began = max(claim.valid_from, cell.began)
    return cell
