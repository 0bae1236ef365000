"""The roll-up of one deployment at a moment, and what stands behind it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from kvaudit.auditor import checks
from kvaudit.auditor.stats.accumulated_said import bound_in
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Plan
from kvaudit.server.audits.state.bulk_reads import Micros, micros
from kvaudit.server.audits.state.bulk_reads import when as moment_of

GATE = checks.where("gate")
"""The gate set of checklist item 5 (checks.md 10)."""

ALWAYS_REQUIRED = checks.where("required")
"""What checklist items 1-5 rest on, where this build has the check; plans add to it."""

ACCUMULATING = checks.where("accumulates")

ONLY_PLANNED = frozenset(checks.where("planned_only"))
"""A fail of these counts where a plan runs them; of any other check it counts whoever asked (checks.md, Verdicts:
any fail is a fail). Without that a leak that somebody found by hand would leave the deployment a pass; so would
an inconclusive test after it."""


def required_checks(planned: Iterable[str] = ()) -> tuple[str, ...]:
    """Checks without which a deployment cannot be *pass*, in the order of `checks.MODULES`."""
    wanted = {*ALWAYS_REQUIRED, *planned}
    return tuple(check for check in checks.MODULES if check in wanted)


class CheckNow(NamedTuple):
    """One check of one deployment at a moment.

    ``verdict`` is what counts: *inconclusive* when the check is missing or expired, whatever
    ``said`` (its last verdict, None when it never ran).
    """

    check: str
    verdict: Verdict
    said: Verdict | None = None
    warn: bool = False
    severity: str = ""
    summary: str = "never ran"
    since: datetime | None = None
    last_confirmed: datetime | None = None
    expires_at: datetime | None = None
    expired_by: str = ""  # "" while it holds; "age" or what expired it, for instance "capacity change"
    run_id: int | None = None
    result_id: int | None = None
    node_id: int | None = None
    required: bool = True
    counts: bool = True  # in the roll-up: required, or `counts_unrequired` without being so

    @property
    def missing(self) -> bool:
        return self.said is None

    @property
    def expired(self) -> bool:
        return bool(self.expired_by)


class StateRow(NamedTuple):
    """An open interval, as it is read: columns of `CheckState`. Times are microseconds (`narrow.micros`)."""

    deployment_id: int
    node_id: int | None
    check: str
    verdict: str
    warn: bool
    severity: str
    summary: str
    since: int
    last_confirmed: int
    expires_at: int
    expired_by: str
    run_id: int | None
    result_id: int | None


STATE_COLUMNS = (
    "deployment_id", "node_id", "check_id", "verdict", "warn", "severity", "summary", Micros("since"),
    Micros("last_confirmed"), Micros("expires_at"), "expired_by", "run_id", "result_id",
)  # fmt: skip


@dataclass(frozen=True)
class DeploymentStatus:
    """The roll-up of one deployment. What stands behind it is made when somebody looks: a page rolls up a
    fleet and shows few of its deployments."""

    moment: datetime
    verdict: Verdict
    warn: bool
    required: Sequence[str]
    states: Sequence[StateRow]
    overdue_since: datetime | None = None
    plans: Sequence[Plan] = ()  # the enabled ones that select it
    unrefuted: Collection[str] = ()  # beyond `ALWAYS_REQUIRED`: failed, and have learnt nothing since
    leaking: bool = (
        False  # a check that counts shows foreign text or another tenant's state, and has not expired
    )

    @cached_property
    def checks(self) -> Mapping[str, CheckNow]:
        """Required and other checks that ever ran, in the order of `checks.MODULES`."""
        whole = {state.check: state for state in self.states if state.node_id is None}
        at = micros(self.moment)
        shown: dict[str, CheckNow] = {}
        for check in checks.MODULES:
            if check in whole:
                required = check in self.required
                counts = required or counts_unrequired(check, whole[check].verdict, self.unrefuted)
                shown[check] = _now(whole[check], at, required=required, counts=counts)
            elif check in self.required:
                shown[check] = CheckNow(check, Verdict.INCONCLUSIVE)
        return shown

    @cached_property
    def nodes(self) -> Sequence[CheckNow]:
        """States that belong to a single node."""
        at = micros(self.moment)
        return [_now(state, at, required=True) for state in self.states if state.node_id is not None]

    @property
    def said(self) -> frozenset[tuple[str, str, bool]]:
        """(check, its verdict, whether that has expired), without when: much of a fleet says the same."""
        at = micros(self.moment)
        return frozenset(
            (state.check, state.verdict, state.expires_at <= at)
            for state in self.states
            if state.node_id is None
        )

    @property
    def planned(self) -> frozenset[str]:
        """Checks that some enabled plan runs."""
        return frozenset(check for plan in self.plans for check in plan.checks)

    @property
    def next_due(self) -> datetime | None:
        """When the next of its plans is due."""
        return min((plan.next_due for plan in self.plans if plan.next_due), default=None)

    @property
    def bound(self) -> str:
        """How rare leaks are by the canary's evidence, as a clause; "" where nothing bounds them."""
        said = (bound_in(state.summary) for state in self.states if state.check in ACCUMULATING)
        return next((f"{clause[0].upper()}{clause[1:]}" for clause in said if clause), "")

    def result_of(self, check: str) -> int | None:
        """The result that its state of the check rests on."""
        return next((s.result_id for s in self.states if s.check == check and s.node_id is None), None)

    @property
    def confirmed(self) -> datetime | None:
        """The last time that any check of this build concluded anything about the whole deployment."""
        times = [
            state.last_confirmed
            for state in self.states
            if state.node_id is None and state.check in checks.MODULES
        ]
        return moment_of(max(times)) if times else None

    @property
    def missing(self) -> list[str]:
        return [name for name, now in self.checks.items() if now.required and now.missing]

    @property
    def expired(self) -> list[str]:
        return [name for name, now in self.checks.items() if now.counts and now.expired]

    @property
    def unrefuted_checks(self) -> list[str]:
        """Of the checks that count: those that failed, and whose later tests could not be done."""
        return [name for name, now in self.checks.items() if now.counts and name in self.unrefuted]

    @property
    def failing(self) -> list[CheckNow]:
        """What makes it *fail*: checks of the whole deployment, then of single nodes."""
        every = (*self.checks.values(), *self.nodes)
        return [now for now in every if now.counts and now.verdict is Verdict.FAIL]

    @property
    def warning(self) -> list[CheckNow]:
        """Checks that count and carry a warning beside their verdict: `warn` says only that there are any."""
        return [now for now in (*self.checks.values(), *self.nodes) if now.counts and now.warn]

    @property
    def since(self) -> datetime | None:
        """Since when the checks that decide the verdict have said so; None when one never ran."""
        every = (*self.checks.values(), *self.nodes)
        deciding = [now for now in every if now.counts and now.verdict == self.verdict]
        moments = [now.since for now in deciding]
        if not moments or any(moment is None for moment in moments):
            return None
        known = [moment for moment in moments if moment is not None]
        return max(known) if self.verdict is Verdict.PASS else min(known)


def counts_unrequired(check: str, said: str, unrefuted: Collection[str]) -> bool:
    """Whether a check that nobody requires counts all the same: it fails, or it failed and nothing since has taken
    that back."""
    return check not in ONLY_PLANNED and (said == Verdict.FAIL or check in unrefuted)


def _now(state: StateRow, at: int, *, required: bool, counts: bool = True) -> CheckNow:
    expired = state.expires_at <= at
    said = Verdict.parse(state.verdict)
    return CheckNow(
        check=state.check,
        verdict=Verdict.INCONCLUSIVE if expired else said,
        said=said,
        warn=state.warn,
        severity=state.severity,
        summary=state.summary,
        since=moment_of(state.since),
        last_confirmed=moment_of(state.last_confirmed),
        expires_at=moment_of(state.expires_at),
        expired_by=(state.expired_by or "age") if expired else "",
        run_id=state.run_id,
        result_id=state.result_id,
        node_id=state.node_id,
        required=required,
        counts=counts,
    )
