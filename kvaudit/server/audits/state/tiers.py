"""Decides the one status of a deployment: its tier, the reason as a sentence, and what to do next.

Fleet, deployment, compliance, gate and API all ask here, so that none of them says otherwise than another. Pure: facts
in, an assessment out. How many controls are met is another question, and is said beside it
(`checklists.matrix.MatrixRow.controls`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.auditor.verdict import SEVERITIES, Verdict
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus

MOST_NAMED = 4


class Tier(StrEnum):
    """How urgent a deployment is, most urgent first. Its value is what addresses and the API say."""

    LEAK = "leak_confirmed"
    UNSAFE = "unsafe"
    NOT_VERIFIED = "not_verified"
    OK = "ok"

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Tier.LEAK: "Leak confirmed",
    Tier.UNSAFE: "Unsafe",
    Tier.NOT_VERIFIED: "Not verified",
    Tier.OK: "OK",
}

MEANS = {
    Tier.LEAK: "A check that shows foreign text, or another tenant's state, is failing.",
    Tier.UNSAFE: "Another check is failing: a limit that does not hold, a build, a setting or a port.",
    Tier.NOT_VERIFIED: "A required check has not decided, could not be carried out, has expired or never ran.",
    Tier.OK: "Every required check passed and none has expired.",
}


def tier_of(status: DeploymentStatus) -> Tier:
    """The tier alone, from what was added up in one pass: a page asks it of a whole fleet."""
    if status.leaking:
        return Tier.LEAK
    if status.verdict is Verdict.FAIL:
        return Tier.UNSAFE
    return Tier.OK if status.verdict is Verdict.PASS else Tier.NOT_VERIFIED


class NextStep(NamedTuple):
    """What a button says and where it leads, below this server."""

    label: str
    address: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is on record of one deployment, as far as its status looks at it. ``failing`` holds what counts and has not
    expired; the others are ids of checks that count. ``incident`` is the number of one that is not restored yet."""

    slug: str
    failing: Sequence[CheckNow] = ()
    errors: Sequence[str] = ()
    undecided: Sequence[str] = ()
    expired: Sequence[str] = ()
    missing: Sequence[str] = ()
    unrefuted: Sequence[str] = ()
    verified: bool = True  # every required check passed and none has expired
    incident: int | None = None

    @classmethod
    def of(cls, slug: str, status: DeploymentStatus, incident: int | None = None) -> Facts:
        counted = [now for now in status.checks.values() if now.counts and not (now.missing or now.expired)]
        counted += [now for now in status.nodes if not now.expired]
        return cls(
            slug,
            failing=status.failing,
            errors=_names(counted, Verdict.ERROR),
            undecided=_names(counted, Verdict.INCONCLUSIVE),
            expired=list(
                dict.fromkeys([*status.expired, *(now.check for now in status.nodes if now.expired)])
            ),
            missing=status.missing,
            unrefuted=status.unrefuted_checks,
            verified=status.verdict is Verdict.PASS,
            incident=incident,
        )


@dataclass(frozen=True, slots=True)
class Assessment:
    """The status that everything shows. ``detail`` is what the gravest failing check says, "" where none fails."""

    tier: Tier
    reason: str
    next_step: NextStep | None
    detail: str = ""


_OK = Assessment(Tier.OK, MEANS[Tier.OK], None)


def assess(facts: Facts) -> Assessment:
    """Tier, reason and next step. What is not known is never *OK*."""
    leaks = [now for now in facts.failing if shows_leak(now)]
    gravest = _gravest(leaks or facts.failing)
    if leaks:
        tier, reason = Tier.LEAK, _leak_reason(leaks, facts.failing)
    elif facts.failing:
        tier, reason = Tier.UNSAFE, f"Failing: {_listed(now.check for now in facts.failing)}."
    elif facts.verified:
        return _OK
    else:
        tier, reason = Tier.NOT_VERIFIED, _unknown_reason(facts)
    return Assessment(tier, reason, _next(facts, gravest), gravest.summary if gravest else "")


def assessment_of(slug: str, status: DeploymentStatus, incident: int | None = None) -> Assessment:
    if status.verdict is Verdict.PASS:
        return _OK if not status.bound else replace(_OK, reason=f"{_OK.reason} {status.bound}.")
    return assess(Facts.of(slug, status, incident))


def shows_leak(now: CheckNow) -> bool:
    """Whether the fail is foreign text or another tenant's state, and not what may lead there."""
    return checks.meaning(now.check, now.severity) is Meaning.LEAK


def _gravest(failing: Sequence[CheckNow]) -> CheckNow | None:
    """By severity, and what was *shown* before what could happen."""
    rank = {grade: place for place, grade in enumerate(SEVERITIES)}
    order = lambda now: (rank.get(now.severity, 9), now.check not in checks.ACTIVE)  # noqa: E731
    return min(failing, key=order, default=None)


def _leak_reason(leaks: Sequence[CheckNow], failing: Sequence[CheckNow]) -> str:
    others = [now.check for now in failing if now not in leaks]
    also = f"; also failing: {_listed(others)}" if others else ""
    return f"Another tenant's text or state was shown by {_listed(now.check for now in leaks)}{also}."


def _unknown_reason(facts: Facts) -> str:
    parts = [
        f"{words}: {_listed(names)}"
        for words, names in (
            ("required checks have never all run", facts.missing),
            ("failed, nothing shown since", facts.unrefuted),
            ("could not be carried out", facts.errors),
            ("expired", facts.expired),
            ("not decided", [name for name in facts.undecided if name not in facts.unrefuted]),
        )
        if names
    ]
    said = "; ".join(parts) or "no check has concluded anything"
    return f"{said[0].upper()}{said[1:]}."


def _next(facts: Facts, gravest: CheckNow | None) -> NextStep:
    if facts.incident is not None:
        return NextStep(f"Open incident {facts.incident}", f"/incidents/{facts.incident}/")
    if gravest is not None and gravest.run_id is not None:
        return NextStep("See what failed", f"/runs/{gravest.run_id}/#check-{quote(gravest.check, safe='')}")
    return NextStep("Run the checks", f"/d/{facts.slug}/checks/")


def _names(counted: Iterable[CheckNow], verdict: Verdict) -> list[str]:
    return list(dict.fromkeys(now.check for now in counted if now.verdict is verdict))


def _listed(ids: Iterable[str]) -> str:
    names = [checks.label(each) for each in dict.fromkeys(ids)]
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
