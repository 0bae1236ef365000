"""Decides what must have passed before a release, after the fix and on the configuration of today. Pure.

Two independent tests decide: the reproduction (the failing cells asked again) and the internal
canary/boundary set, which must come from other runs. Pool and version stand beside them. What is
missing, expired or says anything but *pass* is not met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import Verdict

INTERNAL = tuple(sorted(checks.where("bounds")))
CAPACITY = checks.where("read_at_gate")
CHECKS_OF: Mapping[str, Sequence[str]] = {"internal": INTERNAL, **{check: (check,) for check in CAPACITY}}
"""Condition -> the checks that meet it, of those that are met by an ordinary run."""


@dataclass(frozen=True, slots=True)
class FinishedTest:
    """One result of a finished run. ``asked`` are the lengths in tokens that got a valid answer."""

    run_id: int
    check: str
    verdict: Verdict
    started_at: datetime
    observed_at: datetime
    fingerprint: str
    replay: bool
    asked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class External:
    """What an outside script said, uploaded by somebody other than the fixer or not."""

    at: datetime
    fingerprint: str
    leaked: bool
    by_fixer: bool
    name: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the gate looks at. ``fixed_at`` None: nobody has recorded a fix. ``changed_at`` is the last
    significant change of the configuration, pools included (a digest alone does not show those);
    ``cited`` maps each failing check of the incident to its failing lengths in tokens. ``exact`` are
    the checks that are replayed at those very lengths."""

    fixed_at: datetime | None
    fingerprint: str
    changed_at: datetime | None
    cited: Mapping[str, Sequence[int]]
    ran: Sequence[FinishedTest]
    external: Sequence[External] = ()
    exact: frozenset[str] = frozenset()
    failed_at: datetime | None = None  # the incident's newest evidence: what passed before it shows nothing
    doubts: Sequence[str] = ()  # why the record of what is looked at cannot be relied on

    @property
    def since(self) -> datetime | None:
        """Tests count when they began after the fix, after the last change and after the last fail."""
        if self.fixed_at is None:
            return None
        return max(
            moment for moment in (self.fixed_at, self.changed_at, self.failed_at) if moment is not None
        )


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition, whether it is met, and the sentence that says by what."""

    key: str
    title: str
    met: bool
    sentence: str
    runs: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "met": self.met,
            "sentence": self.sentence,
            "runs": list(self.runs),
        }


def requirements(facts: Facts) -> list[Requirement]:
    """Every condition, in the order in which people work through them."""
    found = [_fix(facts), _reproduction(facts)]
    if facts.external:
        found.append(_external(facts))
    found.append(_set(facts, "internal", "Internal canary and boundary set", INTERNAL))
    found += [_set(facts, check, title, (check,)) for check, title in zip(CAPACITY, _TITLES, strict=True)]
    if facts.doubts:
        found.append(
            Requirement("record", "The record is what was recorded", False, " ".join(facts.doubts[:3]))
        )
    return found


_TITLES = ("Pool against context", "Version and advisories")


def is_open(facts: Facts) -> bool:
    """Whether everything is met."""
    return all(requirement.met for requirement in requirements(facts))


def _fix(facts: Facts) -> Requirement:
    title = "A fix is recorded"
    if facts.fixed_at is None:
        return Requirement("fix", title, False, "Nobody has recorded what was fixed, by whom and when.")
    if not facts.fingerprint:
        return Requirement(
            "fix", title, False, "The deployment's fingerprint is unknown: its nodes have not been read."
        )
    return Requirement("fix", title, True, f"Tests count on the fingerprint {facts.fingerprint} of today.")


def _reproduction(facts: Facts) -> Requirement:
    title = "Reproduction: the failing cells again, same seeds and lengths"
    if not facts.cited:
        good = [external for external in _fresh_external(facts) if not external.leaked]
        if good:
            return Requirement(
                "reproduction", title, True, f"No check had failed; {good[-1].name} no longer shows it."
            )
        return Requirement(
            "reproduction",
            title,
            False,
            "No failing check is cited, so only an external script's result, uploaded by somebody other than the "
            "fixer, can show the fix.",
        )
    runs: list[int] = []
    for check, lengths in sorted(facts.cited.items()):
        last = _last(facts, check, replay=True)
        if last is None:
            return Requirement("reproduction", title, False, f"{check} has not been replayed since the fix.")
        if last.verdict is not Verdict.PASS:
            return Requirement(
                "reproduction",
                title,
                False,
                f"The replay of {check} says {last.verdict.value}.",
                (last.run_id,),
            )
        left = sorted(set(lengths) - last.asked) if check in facts.exact else []
        if left:
            return Requirement(
                "reproduction",
                title,
                False,
                f"The replay of {check} got no valid answer at {_tokens(left)}.",
                (last.run_id,),
            )
        runs.append(last.run_id)
    said = "; ".join(f"{check} at {_tokens(lengths)}" for check, lengths in sorted(facts.cited.items()))
    return Requirement("reproduction", title, True, f"Replayed and passed: {said}.", tuple(sorted(set(runs))))


def _external(facts: Facts) -> Requirement:
    title = "External script"
    fresh = _fresh_external(facts)
    if not fresh:
        return Requirement(
            "external",
            title,
            False,
            "The external result is older than the fix, of another configuration, or uploaded by the fixer.",
        )
    last = fresh[-1]
    if last.leaked:
        return Requirement("external", title, False, f"{last.name} still shows the leak.")
    return Requirement("external", title, True, f"{last.name} no longer shows the leak.")


def _set(facts: Facts, key: str, title: str, checks: Iterable[str]) -> Requirement:
    runs: list[int] = []
    for check in checks:
        last = _last(facts, check, replay=False)
        if last is None:
            return Requirement(
                key,
                title,
                False,
                f"{check} has not run since the fix on the fingerprint of today.",
                tuple(runs),
            )
        runs.append(last.run_id)
        if last.verdict is not Verdict.PASS:
            return Requirement(key, title, False, f"{check} says {last.verdict.value}.", (last.run_id,))
    return Requirement(key, title, True, f"Passed: {', '.join(checks)}.", tuple(sorted(set(runs))))


def _last(facts: Facts, check: str, *, replay: bool) -> FinishedTest | None:
    """The newest result of the check that counts: begun after fix and change, on today's fingerprint."""
    since = facts.since
    if since is None or not facts.fingerprint:
        return None
    fresh = [
        test
        for test in facts.ran
        if test.check == check
        and test.replay is replay
        and test.started_at > since
        and test.fingerprint == facts.fingerprint
    ]
    return max(fresh, key=lambda test: (test.observed_at, test.run_id), default=None)


def _fresh_external(facts: Facts) -> list[External]:
    since = facts.since
    if since is None or not facts.fingerprint:
        return []
    return sorted(
        (
            external
            for external in facts.external
            if external.at > since and external.fingerprint == facts.fingerprint and not external.by_fixer
        ),
        key=lambda external: external.at,
    )


def _tokens(lengths: Sequence[int]) -> str:
    if not lengths:
        return "its own lengths"
    return f"{', '.join(f'{length:,}' for length in lengths[:6])}{' and more' if len(lengths) > 6 else ''} tokens"
