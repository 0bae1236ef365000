"""What people do to an incident: for each act the form that it takes, what is done, and the part of the page it is on.

A form that does not fit, or that the service refuses with a sentence, comes back on the incident's page as it was
typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms as django_forms
from django.http import QueryDict
from django.shortcuts import get_object_or_404

from kvaudit.server.accounts.models import User
from kvaudit.server.audits.services import AuditProblem, audit_now
from kvaudit.server.checklists.attestations import File
from kvaudit.server.incidents import action_enforcement, postmortem, quarantine, restore, restore_gate
from kvaudit.server.incidents import impact as counting
from kvaudit.server.incidents.models import Incident, TimelineEvent
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.web.incidents import forms

Given = Mapping[str, Any]
Make = Callable[..., django_forms.Form]


@dataclass(frozen=True, slots=True)
class Posted:
    """Who acts on what; ``given`` is the checked form, ``post`` holds which row is meant."""

    incident: Incident
    actor: User
    given: Given
    post: QueryDict

    def key(self, name: str) -> int:
        """The row that is meant. Raises `IncidentProblem`."""
        text = self.post.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise IncidentProblem("That row is not known.")
        return int(text)


@dataclass(frozen=True, slots=True)
class Act:
    """``make`` builds the form from (incident, data, files); ``field`` is where a service's refusal is shown, "" above
    the form. ``row`` names the hidden field with the row that the form stands at."""

    part: str
    do: Callable[[Posted], str]
    make: Make | None = None
    field: str = ""
    row: str = ""


def _reasons(name: str, label: str, most: int, help_text: str = "") -> Make:
    def make(incident: Incident, data: Any = None, files: Any = None, row: object = "") -> django_forms.Form:
        ids = f"{name}{row and f'-{row}'}-%s"
        return forms.ReasonForm(data, label=label, most=most, help_text=help_text, auto_id=ids)

    return make


def _simple(kind: type[django_forms.Form], prefix: str) -> Make:
    def make(incident: Incident, data: Any = None, files: Any = None, row: object = "") -> django_forms.Form:
        return kind(data, files, prefix=prefix, auto_id=f"%s{row and f'-{row}'}")

    return make


def _action_form(
    incident: Incident, data: Any = None, files: Any = None, row: object = ""
) -> django_forms.Form:
    team, choices = incident.deployment.team, action_enforcement.choices(incident.deployment)
    return forms.ActionForm(data, prefix="action", auto_id="%s", team=team, choices=choices)


def _step_form(
    incident: Incident, data: Any = None, files: Any = None, row: object = ""
) -> django_forms.Form:
    return forms.StepForm(data, auto_id=f"step-{row}-%s")


def _mitigate(posted: Posted) -> str:
    restore.mitigate(incident=posted.incident, actor=posted.actor, reason=posted.given["reason"])
    return "The incident is mitigated. The fix still has to be proved."


def _quarantine(posted: Posted) -> str:
    quarantine.quarantine(incident=posted.incident, actor=posted.actor, reason=posted.given["reason"])
    return f"{posted.incident.deployment.slug} is under quarantine: every gate refuses it."


def _fix(posted: Posted) -> str:
    restore.record_fix(incident=posted.incident, actor=posted.actor, description=posted.given["description"])
    return "The fix is recorded. Now both tests have to pass."


def _replay(posted: Posted) -> str:
    replay = restore.replay(incident=posted.incident, actor=posted.actor)
    return f"The reproduction is queued as run {replay.run_id}."


def _run(posted: Posted) -> str:
    """The checks of one condition of the restore gate, now."""
    checks = restore_gate.CHECKS_OF.get(posted.post.get("key", ""))
    if checks is None:
        raise IncidentProblem("That condition is met by no check.")
    try:
        run = audit_now(deployment=posted.incident.deployment, actor=posted.actor, checks=checks)
    except AuditProblem as problem:
        raise IncidentProblem(str(problem)) from None
    return f"{', '.join(checks)} is queued as run {run.pk}."


def _upload(posted: Posted) -> str:
    given = posted.given
    sent = given["file"]
    result = restore.upload_result(
        incident=posted.incident,
        actor=posted.actor,
        file=File(sent.name or "result", sent.read(), sent.content_type or ""),
        leaked=given["leaked"] == "yes",
        description=given["description"],
    )
    return f"The result is kept under SHA-256 {result.evidence_id}."


def _ask_override(posted: Posted) -> str:
    restore.request_override(incident=posted.incident, actor=posted.actor, reason=posted.given["reason"])
    return "The override waits for a second person, an approver."


def _decide(approve: bool) -> Callable[[Posted], str]:
    def decide(posted: Posted) -> str:
        override = get_object_or_404(posted.incident.overrides, pk=posted.key("override"))
        note = posted.given["reason"]
        restore.decide_override(override=override, actor=posted.actor, approve=approve, note=note)
        return "The override is approved; it can be used once." if approve else "The override is refused."

    return decide


def _release(posted: Posted) -> str:
    release = restore.release(incident=posted.incident, actor=posted.actor)
    return "Released by override: this stays visible." if release.override else "Released: both tests pass."


def _close(posted: Posted) -> str:
    postmortem.close(incident=posted.incident, actor=posted.actor)
    return f"Incident {posted.incident.pk} is closed."


def _event(posted: Posted) -> str:
    old = replaced_event(posted.incident, posted.post)
    postmortem.put_event(incident=posted.incident, actor=posted.actor, replaces=old, **posted.given)
    return (
        "The timeline has its event; the version before stays to be read." if old else "The event is added."
    )


def replaced_event(incident: Incident, post: QueryDict) -> TimelineEvent | None:
    """The version that the form was opened on; None for a new event."""
    if not post.get("replaces"):
        return None
    return get_object_or_404(incident.events, pk=Posted(incident, User(), {}, post).key("replaces"))


def _impact(posted: Posted) -> str:
    postmortem.put_impact(incident=posted.incident, actor=posted.actor, **posted.given)
    return "The impact has its line."


def _count(posted: Posted) -> str:
    lines = counting.count_impact(incident=posted.incident, actor=posted.actor)
    return f"Counted from the {lines[0].source}."


def _withdraw_event(posted: Posted) -> str:
    line = get_object_or_404(posted.incident.events, pk=posted.key("line"))
    postmortem.withdraw(line=line, actor=posted.actor)
    return "The event is withdrawn; it stays in the edit history."


def _withdraw_impact(posted: Posted) -> str:
    line = get_object_or_404(posted.incident.impact_lines, pk=posted.key("line"))
    postmortem.withdraw(line=line, actor=posted.actor)
    return "The line is withdrawn."


def _cause(posted: Posted) -> str:
    postmortem.add_cause(incident=posted.incident, actor=posted.actor, text=posted.given["text"])
    return "The cause is added."


def _withdraw_cause(posted: Posted) -> str:
    cause = get_object_or_404(posted.incident.causes, pk=posted.key("line"))
    postmortem.withdraw_cause(cause=cause, actor=posted.actor)
    return "The cause is withdrawn."


def _action(posted: Posted) -> str:
    postmortem.add_action(incident=posted.incident, actor=posted.actor, **posted.given)
    return "The action item is added."


def _step(posted: Posted) -> str:
    item = get_object_or_404(posted.incident.action_items, pk=posted.key("item"))
    to = posted.given["to"]
    postmortem.step_action(item=item, to=to, actor=posted.actor, reason=posted.given["reason"])
    return f"“{item.title}” is {to}."


_APPROVAL = _reasons("decide", "Reason", 1_000)

ACTS: Mapping[str, Act] = {
    "mitigate": Act(
        "state", _mitigate, _reasons("mitigate", "What keeps tenants out of danger now", 1_000), "reason"
    ),
    "quarantine": Act(
        "state", _quarantine, _reasons("quarantine", "Why it must not take traffic", 1_000), "reason"
    ),
    "fix": Act("state", _fix, _simple(forms.FixForm, "fix"), "description"),
    "replay": Act("state", _replay),
    "run": Act("state", _run),
    "upload": Act("gate", _upload, _simple(forms.ResultForm, "result"), "file"),
    "ask-override": Act(
        "gate",
        _ask_override,
        _reasons(
            "override",
            "Why it cannot wait for the tests",
            4_000,
            "A second person must approve it. It stays on the incident for good.",
        ),
        "reason",
    ),
    "approve": Act("gate", _decide(True), _APPROVAL, "reason", row="override"),
    "refuse": Act("gate", _decide(False), _APPROVAL, "reason", row="override"),
    "release": Act("state", _release),
    "close": Act("state", _close),
    "event": Act("timeline", _event, _simple(forms.EventForm, "event"), "text", row="replaces"),
    "withdraw-event": Act("timeline", _withdraw_event),
    "impact": Act("impact", _impact, _simple(forms.ImpactForm, "impact"), "statement"),
    "count": Act("impact", _count),
    "withdraw-impact": Act("impact", _withdraw_impact),
    "cause": Act("causes", _cause, _simple(forms.CauseForm, "cause"), "text"),
    "withdraw-cause": Act("causes", _withdraw_cause),
    "action": Act("actions", _action, _action_form, "title"),
    "step": Act("actions", _step, _step_form, "reason", row="item"),
}
