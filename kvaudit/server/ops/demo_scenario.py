"""Plays the incident in small with real runs: the lab's leaking deployment fails, is mended while it runs, both
tests pass, it is released and its postmortem closed.

Every verdict, number and moment comes from the audits; the sentences around them are written here,
as a person would. Two people act: one mends, the other has the last word.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.db import transaction

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.accounts.roles import Role
from kvaudit.server.accounts.services import grant_role
from kvaudit.server.audits.models import CheckState, Run
from kvaudit.server.audits.services import audit_now
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import opening, postmortem, restore
from kvaudit.server.incidents.models import ActionItem, Incident, Kind, State
from kvaudit.server.incidents.restore_facts import requirements_of
from kvaudit.server.incidents.transitions import IncidentProblem

ACTOR = "command:lab_story"
SLUG = "lab-leaking"
SHOWS_IT = checks.where("bounds")
GLANCE = 0.3

Say = Callable[[str], None]
Found = TypeVar("Found")


class ScenarioFault(RuntimeError):
    """The story cannot go on; the text says why."""


def play(*, lab: Path, say: Say, slug: str = SLUG, seconds: float = 900.0) -> Incident:
    """From the leak to the closed postmortem; returns the closed incident. Raises ScenarioFault.

    A story that was interrupted goes on where it is.
    """
    deployment = Deployment.objects.select_related("team").filter(slug=slug).first()
    if deployment is None:
        raise ScenarioFault(f"there is no deployment {slug}: start the product with its lab (`make up`).")
    if not (lab / "fleet.json").exists():
        raise ScenarioFault(f"no lab runs in {lab}: start the product with its lab (`make up`).")
    teller = _Scenario(deployment, lab, say, seconds)
    incident = teller.leak()
    if incident.state == State.OPEN:
        incident = teller.mitigate(incident)
    if incident.state == State.MITIGATED:
        teller.mend(incident)
        teller.prove(incident)
        incident = teller.release(incident)
    teller.write(incident)
    return teller.close(incident)


class _Scenario:
    def __init__(self, deployment: Deployment, lab: Path, say: Say, seconds: float) -> None:
        self.deployment, self.lab, self.say, self.seconds = deployment, lab, say, seconds
        self.oncall = _person("lab-oncall", Role.OPERATOR, deployment.team)
        self.lead = _person("lab-lead", Role.APPROVER, deployment.team)

    def leak(self) -> Incident:
        """The incident that the leak has opened; an audit is asked for when nothing has looked yet."""
        found = self._lasting()
        if found is None:
            self.say(f"{self.deployment.slug}: no leak is known yet; its boundary is audited now.")
            run = audit_now(deployment=self.deployment, actor=ACTOR, checks=SHOWS_IT)
            self._ended([run])
            found = self._until(
                self._lasting, "the audit found no leak: is the lab's deployment mended already?"
            )
        self.say(f"Incident {found.pk}: {found.title}. The deployment is under quarantine.")
        return found

    def mitigate(self, incident: Incident) -> Incident:
        shortest = incident.affected_from
        limit = f"prompts of {shortest:,} tokens and more" if shortest else "long prompts"
        moved = restore.mitigate(
            incident=incident, actor=self.oncall, reason=f"The edge refuses {limit} with an explicit 400."
        )
        self.say(f"Mitigated: {limit} are no longer served.")
        return moved

    def mend(self, incident: Incident) -> None:
        """Another engine at the same addresses, and the fix on record."""
        if incident.fixes.exists():
            return
        about = _restarted(self.lab, self.deployment.slug, self.seconds)
        restore.record_fix(
            incident=incident,
            actor=self.oncall,
            description=f"Restarted on {about['engine']} {about['version']} with a larger prefill pool "
            f"({about['pools'].get('prefill', 0):,} tokens).",
        )
        self.say(f"Fixed: {about['engine']} {about['version']}, pools {about['pools']}.")

    def prove(self, incident: Incident) -> None:
        """First what the change brings about by itself, then the reproduction, then what is still missing."""
        self._ended([audit_now(deployment=self.deployment, actor=ACTOR)])
        self._ended(self._pending())
        missing = {requirement.key for requirement in requirements_of(incident) if not requirement.met}
        if "reproduction" in missing:
            replay = restore.replay(incident=incident, actor=self.lead)
            self.say(f"Reproduction: the failing cells again, with their seed, in run {replay.run_id}.")
            self._ended([replay.run])
            missing = {requirement.key for requirement in requirements_of(incident) if not requirement.met}
        if "internal" in missing:
            run = audit_now(deployment=self.deployment, actor=ACTOR, checks=SHOWS_IT)
            self.say(f"Internal set: canary and rejection in run {run.pk}.")
            self._ended([run])
        if missing & {"pool", "version"}:
            self._ended([audit_now(deployment=self.deployment, actor=ACTOR)])
        self._ended(self._pending())

    def release(self, incident: Incident) -> Incident:
        for requirement in requirements_of(incident):
            self.say(
                f"  {'met    ' if requirement.met else 'NOT met'} {requirement.title}: {requirement.sentence}"
            )
        try:
            made = restore.release(incident=incident, actor=self.lead)
        except IncidentProblem as problem:
            raise ScenarioFault(str(problem)) from None
        self.say(f"Released on fingerprint {made.fingerprint} by {made.released_by.get_username()}.")
        return Incident.objects.select_related("deployment__team").get(pk=incident.pk)

    def write(self, incident: Incident) -> None:
        """The postmortem, around what the audits found."""
        checks = ", ".join(opening.checks_of(incident))
        shortest = incident.affected_from
        lengths = f"{shortest:,} tokens" if shortest else "the boundary"
        builds = ", ".join(incident.builds)
        texts = {
            "summary": f"Prompts of {lengths} and more were answered with HTTP 200 out of pages that other requests "
            f"had filled. {checks} showed it on {builds}; no customer was served from this lab.",
            "detection": f"An audit's {checks} failed, and that opened the incident by itself.",
            "missed_by": self._missed(),
            "overlap": "A pool above the context never reaches the rejection; a rejection that ends before the "
            "transfer makes a small pool harmless. Only both together leak.",
            "lessons": "- A failing pool check blocks traffic.\n"
            "- The boundary is tested after every change of capacity.",
        }
        with transaction.atomic():
            postmortem.write_sections(incident=incident, actor=self.oncall, texts=texts)
            if not incident.causes.exists():
                for cause in (
                    "The prefill pool was smaller than the advertised context.",
                    "The engine prefilled and transferred a rejected request's placeholder.",
                ):
                    postmortem.add_cause(incident=incident, actor=self.oncall, text=cause)
            if not incident.impact_lines.exists():
                self._impact(incident, lengths)
            if not incident.events.exists() and incident.mitigated_at:
                postmortem.put_event(
                    incident=incident,
                    actor=self.oncall,
                    at=incident.mitigated_at,
                    text="On-call stopped the affected lengths at the edge.",
                    source="lab-oncall",
                )
            if not incident.action_items.exists():
                self._actions(incident)

    def _missed(self) -> str:
        """What the pool check said, if it said anything before the fix."""
        failed = (
            CheckState.objects.filter(
                deployment=self.deployment, check_id="pool", verdict=Verdict.FAIL.value, node=None
            )
            .order_by("since")
            .first()
        )
        if failed is None:
            return (
                "The pool check had not failed: nothing compared the pool with the context before the leak."
            )
        return (
            f"The pool check failed too, since {failed.since:%Y-%m-%d %H:%M} UTC, and no gate stood between it and "
            "traffic."
        )

    def _impact(self, incident: Incident, lengths: str) -> None:
        lines = (
            ("responses", "unknown", "How many ordinary requests were answered wrongly is not counted.", ""),
            ("tenants", "known", "The two tenants of the lab.", "fleet file"),
            ("lengths", "known", f"{lengths} and more.", "the runs that the incident cites"),
        )
        for measure, certainty, statement, source in lines:
            postmortem.put_impact(
                incident=incident,
                actor=self.oncall,
                measure=measure,
                certainty=certainty,
                statement=statement,
                source=source,
            )

    def _actions(self, incident: Incident) -> None:
        due = (clock.now() + timedelta(days=14)).date()
        for title, enforced_by in (
            ("Gate every node on its pool before it takes traffic", "check:pool"),
            ("Keep the pinned build", "check:version"),
            ("Test the boundary every night", "check:rejection"),
        ):
            postmortem.add_action(
                incident=incident,
                actor=self.lead,
                title=title,
                owner=self.oncall,
                due=due,
                enforced_by=enforced_by,
            )

    def close(self, incident: Incident) -> Incident:
        for item in ActionItem.objects.filter(incident=incident, state="open"):
            try:
                postmortem.step_action(item=item, to="done", actor=self.oncall, reason="Green since the fix.")
            except IncidentProblem as problem:
                self.say(f"“{item.title}” stays open: {problem}")
        try:
            closed = postmortem.close(incident=incident, actor=self.lead, reason="Proved and written.")
        except IncidentProblem as problem:
            raise ScenarioFault(str(problem)) from None
        self.say(f"Incident {closed.pk} is closed.")
        return closed

    def _lasting(self) -> Incident | None:
        return (
            Incident.objects.lasting()
            .select_related("deployment__team")
            .filter(deployment=self.deployment, kind=Kind.LEAK)
            .first()
        )

    def _pending(self) -> list[Run]:
        return list(Run.objects.pending().filter(deployment=self.deployment, not_before__lte=clock.now()))

    def _ended(self, runs: Sequence[Run]) -> None:
        ids = {run.pk for run in runs}
        self._until(
            lambda: not Run.objects.pending().filter(pk__in=ids).exists(),
            f"runs {', '.join(map(str, sorted(ids)))} do not end: does a worker run?",
        )
        for run in Run.objects.filter(pk__in=ids).order_by("pk"):
            self.say(f"  run {run.pk} ({', '.join(run.checks)}): {run.verdict or run.state}")

    def _until(self, look: Callable[[], Found | None], otherwise: str) -> Found:
        """Look again and again; ScenarioFault after the patience."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            if found := look():
                return found
            time.sleep(GLANCE)
        raise ScenarioFault(f"within {self.seconds:.0f} s: {otherwise}")


def _restarted(lab: Path, slug: str, seconds: float) -> dict[str, Any]:
    """What the lab's deployment is after it was given its fix. The lab is another program: its command is used."""
    command = [sys.executable, "-m", "kvaudit.cli", "lab", "restart", slug, "--state", str(lab)]
    done = subprocess.run([*command, "--seconds", str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ScenarioFault(
            done.stderr.strip().removeprefix("ERROR ") or "the lab does not restart its deployment"
        )
    about: dict[str, Any] = json.loads(done.stdout)
    return about


def _person(name: str, role: Role, team: Team) -> User:
    """Somebody of the lab's team who cannot log in: there is no password."""
    user, new = User.objects.get_or_create(username=name)
    if new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    grant_role(user=user, team=team, role=role, actor=ACTOR)
    return User.objects.get(pk=user.pk)
