"""How an item stands for a deployment at a moment. Pure: rows in, cells out; nothing is stored.

A check's verdict counts while it has not expired; missing and expired are *inconclusive*. An
attestation or a waiver is a view on that verdict, never a change of it, and neither hides a leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from kvaudit.checklists.items import Item
from kvaudit.verdict import Verdict, roll_up


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
        return self in (Status.PASS, Status.ATTESTED, Status.WAIVED)


WORST_FIRST = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.WAIVED, Status.ATTESTED, Status.PASS)

PROOF_OF_LEAK = frozenset({"canary", "concurrency", "session"})
"""A fail of these is another tenant's text in an answer, whatever it is graded."""
MAY_PROVE_LEAK = frozenset({"rejection", "coherence", "prefill", "prefix"})
"""A fail of these graded *critical* is an answer out of foreign pages."""


class Says(NamedTuple):
    """One interval of a check, as it stood; the columns of `CheckState` in `COLUMNS` order."""

    deployment_id: int
    node_id: int | None
    check: str
    verdict: str
    warn: bool
    severity: str
    since: datetime
    last_confirmed: datetime
    expires_at: datetime
    expired_by: str
    run_id: int
    summary: str

    @property
    def leaks(self) -> bool:
        """Whether its last word was a verified leak: expiry does not take that back."""
        if self.verdict != Verdict.FAIL:
            return False
        return self.check in PROOF_OF_LEAK or (self.check in MAY_PROVE_LEAK and self.severity == "critical")


COLUMNS = (
    "deployment_id", "node_id", "check_id", "verdict", "warn", "severity", "since", "last_confirmed",
    "expires_at", "expired_by", "run_id", "summary",
)  # fmt: skip


class Claim(Protocol):
    """An attestation or a waiver in force at the moment that is asked about."""

    pk: Any
    valid_from: Any
    expires_at: Any


@dataclass(slots=True)
class Cell:
    """One item of one deployment. ``verdict`` is what the checks alone say (None: not applicable),
    ``status`` what is shown. ``since`` is when it began to be so, ``until`` when it ends by itself
    (None: it does not). ``says`` are the states it rests on."""

    item: Item
    status: Status
    verdict: Verdict | None
    since: datetime
    until: datetime | None = None
    says: Sequence[Says] = ()
    missing: Sequence[str] = ()
    expired: Sequence[Says] = ()
    warn: bool = False
    leak: bool = False
    attestation: Any = None
    waiver: Any = None  # in force for this cell, whether it changes anything or not

    @property
    def waiver_idle(self) -> bool:
        """A waiver is in force that waives nothing here."""
        return self.waiver is not None and self.status is not Status.WAIVED

    @property
    def failing(self) -> list[Says]:
        gone = set(self.expired)
        return [each for each in self.says if each.verdict == Verdict.FAIL and each not in gone]

    @property
    def reason(self) -> str:
        """A sentence without a full stop: why the cell shows what it shows."""
        if self.status is Status.NOT_APPLICABLE:
            return f"only for {self.item.applies_to} deployments"
        parts = []
        if self.status is Status.WAIVED:
            parts.append(f"waived; without the waiver {self.verdict}")
        elif self.status is Status.ATTESTED:
            parts.append("by attestation")
        if self.leak and self.waiver is not None:
            parts.append("a verified leak cannot be waived")
        gone = set(self.expired)
        held: dict[str, list[str]] = {}
        for each in self.says:
            if each not in gone and each.verdict != Verdict.PASS:
                word = "failing" if each.verdict == Verdict.FAIL else Verdict.parse(each.verdict).value
                held.setdefault(word, []).append(each.check)
        parts += [f"{word}: {', '.join(dict.fromkeys(names))}" for word, names in held.items()]
        if self.expired:
            words = dict.fromkeys(f"{each.check} ({each.expired_by or 'age'})" for each in self.expired)
            parts.append(f"expired: {', '.join(words)}")
        if self.missing:
            parts.append(f"never ran: {', '.join(self.missing)}")
        if not self.item.checks and self.status is Status.INCONCLUSIVE:
            parts.append("not attested")
        return "; ".join(parts) or f"{', '.join(self.item.checks)} passed"


@dataclass(slots=True)
class Row:
    """A deployment with its cells by key, in the order of the checklist. An item of another team's own
    list has no cell here."""

    deployment: Any
    cells: Mapping[str, Cell]
    overdue_since: datetime | None = None
    status: Status = field(init=False)

    def __post_init__(self) -> None:
        self.status = combine(cell.status for cell in self.cells.values())

    @property
    def since(self) -> datetime:
        """Since when the deployment has stood as it does: all of the best, the first of anything worse."""
        moments = [cell.since for cell in self.cells.values() if cell.status is self.status]
        if not moments:
            return self.deployment.created_at  # type: ignore[no-any-return]
        return max(moments) if self.status.complies else min(moments)


@dataclass(slots=True)
class Matrix:
    """Deployments x items at one moment, in the order of the queryset that was asked."""

    moment: datetime
    items: Sequence[Item]
    rows: Sequence[Row]

    def counts(self) -> dict[tuple[int, str, Status], int]:
        """(team id, item key, status) -> cells: what a day's snapshot keeps."""
        found: dict[tuple[int, str, Status], int] = {}
        for row in self.rows:
            team = row.deployment.team_id
            for key, cell in row.cells.items():
                place = (team, key, cell.status)
                found[place] = found.get(place, 0) + 1
        return found


def combine(statuses: Iterable[Status]) -> Status:
    """The roll-up: any fail, else any error, else any inconclusive, else by waiver, by attestation, pass.
    What is not applicable does not count; nothing at all is inconclusive, for nothing was learnt."""
    seen = set(statuses)
    for status in WORST_FIRST:
        if status in seen:
            return status
    return Status.NOT_APPLICABLE if seen else Status.INCONCLUSIVE


def stand(
    item: Item,
    said: Mapping[str, Sequence[Says]],
    moment: datetime,
    *,
    created_at: datetime,
    attestation: Claim | None = None,
    waiver: Claim | None = None,
    mode: str = "",
) -> Cell:
    """How one item stands. ``said`` maps a check to its open states (the deployment's, and any of single
    nodes); ``mode`` is disaggregated, unified or "" where neither was declared nor read."""
    if item.applies_to and mode and mode != item.applies_to:
        return Cell(item, Status.NOT_APPLICABLE, None, created_at)
    says = [each for check in item.checks for each in said.get(check, ())]
    missing = [check for check in item.checks if check not in said]
    expired = [each for each in says if each.expires_at <= moment]
    verdict = _verdict(says, moment, bool(missing))
    cell = Cell(
        item=item,
        status=Status(verdict.value),
        verdict=verdict,
        since=_since(says, missing, verdict, moment, created_at),
        until=min((each.expires_at for each in says), default=None) if verdict is Verdict.PASS else None,
        says=says,
        missing=missing,
        expired=expired,
        warn=any(each.warn for each in says),
        leak=any(each.leaks for each in says),
        waiver=waiver,
    )
    if verdict is Verdict.PASS:
        return cell
    if attestation is not None and item.attestable:
        cell.attestation = attestation
        # An expired fail is still the last thing that was learnt: somebody's word does not outweigh it.
        if not any(each.verdict == Verdict.FAIL for each in says):
            cell.status, cell.until = Status.ATTESTED, attestation.expires_at
            cell.since = max(attestation.valid_from, cell.since)
            return cell
    if waiver is not None and not cell.leak:
        cell.status, cell.until = Status.WAIVED, waiver.expires_at
        cell.since = max(waiver.valid_from, cell.since)
    return cell


def _verdict(says: Sequence[Says], moment: datetime, missing: bool) -> Verdict:
    return roll_up(
        (Verdict.INCONCLUSIVE if each.expires_at <= moment else each.verdict for each in says),
        missing=missing,
    )


def _since(
    says: Sequence[Says], missing: Sequence[str], verdict: Verdict, moment: datetime, created_at: datetime
) -> datetime:
    """Since when: of a pass, when the last of its checks came to pass; of anything else, when the first
    check that now decides began to say so. A check expired when it expired; one that never ran is
    missing since the deployment is known."""
    if verdict is Verdict.PASS:
        return max(each.since for each in says)
    if verdict is Verdict.INCONCLUSIVE:
        moments = [created_at] if missing or not says else []
        for each in says:
            if each.expires_at <= moment:
                moments.append(each.expires_at)
            elif each.verdict == Verdict.INCONCLUSIVE:
                moments.append(each.since)
        return min(moments, default=created_at)
    return min(
        (each.since for each in says if each.expires_at > moment and Verdict.parse(each.verdict) is verdict),
        default=created_at,
    )
