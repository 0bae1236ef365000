"""Any order of acts: nothing leads to *restored* but both tests on today's fingerprint, or a recorded
override by a second person. The model below knows only what happened, not how the gate decides."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kvaudit.server.incidents import opening, postmortem, restore
from kvaudit.server.incidents.models import Quarantine, State, Transition
from kvaudit.server.incidents.transitions import STEPS, IncidentProblem
from tests.drawn import cases
from tests.server.incidents.builders import (
    LEAKING_LENGTHS,
    a_leak,
    a_result,
    a_state,
    a_target,
    an_incident,
    an_operator,
    rejection_measures,
    runs_version,
)

VERDICTS = st.sampled_from(["pass", "pass", "pass", "inconclusive", "error"])
NEEDED = ("canary", "rejection", "pool", "version")


class Acts(RuleBasedStateMachine):
    """What happened, as a list; ``since`` is where the last fix or change of configuration stands in it."""

    def __init__(self):
        super().__init__()
        self.deployment = a_target(version="1")
        self.incident = an_incident(self.deployment)
        self.people = [an_operator(self.deployment, "approver") for _ in range(2)]
        self.version = 1
        self.fixed = False
        self.seen: dict[
            tuple[str, bool], bool
        ] = {}  # (check, replay) -> passed, since the last fix or change
        self.override = None  # None, or the version that an approved, unused override is for

    @property
    def state(self):
        self.incident.refresh_from_db()
        return self.incident.state

    @property
    def both_tests(self):
        return (
            self.fixed
            and self.seen.get(("rejection", True), False)
            and all(self.seen.get((check, False), False) for check in NEEDED)
        )

    @rule()
    def upgrade(self):
        self.version += 1
        runs_version(self.deployment, str(self.version))
        self.seen.clear()

    @rule(person=st.sampled_from([0, 1]))
    def fix(self, person):
        try:
            restore.record_fix(incident=self.incident, actor=self.people[person], description="d")
        except IncidentProblem:
            return
        self.fixed = True
        self.seen.clear()

    @rule(verdict=VERDICTS, whole=st.booleans())
    def replay(self, verdict, whole):
        try:
            made = restore.replay(incident=self.incident, actor=self.people[0])
        except IncidentProblem:
            return
        lengths = LEAKING_LENGTHS if whole else LEAKING_LENGTHS[:1]
        a_result(
            self.deployment, "rejection", verdict, run=made.run, measures=rejection_measures(refused=lengths)
        )
        self.seen["rejection", True] = verdict == "pass" and whole

    @rule(check=st.sampled_from(NEEDED), verdict=VERDICTS)
    def audit(self, check, verdict):
        a_state(a_result(self.deployment, check, verdict))
        self.seen[check, False] = verdict == "pass"

    @rule()
    def audit_all(self):
        for check in NEEDED:
            self.audit(check, "pass")

    @rule()
    def leak_again(self):
        before = self.state
        if before == State.CLOSED:
            return
        a_leak(self.deployment)
        opening.consume()
        self.seen.clear()
        if before == State.RESTORED or (before == State.MITIGATED and self.fixed):
            assert self.state == State.OPEN
            self.override = None

    @rule(asker=st.sampled_from([0, 1]), decider=st.sampled_from([0, 1]), approve=st.booleans())
    def ask_override(self, asker, decider, approve):
        try:
            asked = restore.request_override(incident=self.incident, actor=self.people[asker], reason="r")
        except IncidentProblem:
            return
        if asker == decider:
            with pytest.raises(Exception, match="second person"):
                restore.decide_override(override=asked, actor=self.people[decider], approve=approve, note="n")
            decider, approve = 1 - asker, False
        restore.decide_override(override=asked, actor=self.people[decider], approve=approve, note="n")
        if approve:
            self.override = self.version

    @rule()
    def release(self):
        before = self.state
        allowed = before == State.MITIGATED and (self.both_tests or self.override == self.version)
        try:
            made = restore.release(incident=self.incident, actor=self.people[0])
        except IncidentProblem:
            assert not allowed
            assert self.state == before
            return
        assert allowed
        assert (made.override is None) == self.both_tests
        assert self.state == State.RESTORED
        if made.override is not None:
            self.override = None

    @rule()
    def close_at_once(self):
        with pytest.raises(IncidentProblem):
            postmortem.close(incident=self.incident, actor=self.people[0])

    @invariant()
    def every_restored_has_its_grounds(self):
        for step in Transition.objects.filter(incident=self.incident, after=State.RESTORED):
            release = self.incident.releases.get(at__lte=step.at, at__gte=self._before(step))
            override = release.override
            if override is not None:
                assert override.approved
                assert override.decided_by_id != override.requester_id
                assert override.fingerprint == release.fingerprint
            else:
                assert all(requirement["met"] for requirement in release.grounds["requirements"])
                assert release.runs.exclude(fingerprint=release.fingerprint).count() == 0

    @invariant()
    def steps_are_steps(self):
        rows = list(self.incident.transitions.order_by("at", "id"))
        for before, after in pairwise(rows):
            assert after.before == before.after
            assert after.after in STEPS[before.after]

    @invariant()
    def quarantined_until_restored(self):
        held = Quarantine.objects.of(self.deployment).exists()
        assert held == (self.state in (State.OPEN, State.MITIGATED))

    def _before(self, step):
        earlier = self.incident.transitions.filter(id__lt=step.id).order_by("-id").first()
        return earlier.at


@pytest.mark.django_db
def test_no_path_to_restored_without_both_tests_or_a_recorded_override():
    run_state_machine_as_test(
        Acts, settings=settings(max_examples=cases(10), stateful_step_count=25, deadline=None)
    )
