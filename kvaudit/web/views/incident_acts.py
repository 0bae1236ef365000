"""What people do to an incident. Each act is one service; its sentence comes back as a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django import forms as django_forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect

from kvaudit.checklists.attesting import File
from kvaudit.incidents import counting, following, postmortem, quarantining, restoring
from kvaudit.incidents.models import Incident
from kvaudit.incidents.moving import IncidentProblem
from kvaudit.web import incident_forms as forms
from kvaudit.web.page import SignedIn, page
from kvaudit.web.views.incidents import incident_or_404

Act = Callable[[SignedIn, Incident], str]


class _Incomplete(ValueError):
    """A form that did not hold together; the text says which field."""


@page("POST")
def act(request: SignedIn, pk: int) -> HttpResponse:
    """``act`` names what is done; goes back to the part of the page that it concerns."""
    found = incident_or_404(request.user, pk)
    name = request.POST.get("act", "")
    if name not in ACTS:
        return HttpResponseBadRequest("There is no such act.")
    doing, part = ACTS[name]
    try:
        messages.success(request, doing(request, found))
    except (IncidentProblem, _Incomplete) as problem:
        messages.error(request, str(problem))
    except PermissionDenied as refusal:
        raise PermissionDenied(str(refusal) or "Your role does not allow this.") from None
    response = redirect("incident", pk)
    response["Location"] += f"#{part}"
    return response


def _given(form: django_forms.Form) -> dict[str, object]:
    if not form.is_valid():
        field, errors = next(iter(form.errors.items()))
        label = form.fields[field].label or field.replace("_", " ") if field in form.fields else ""
        raise _Incomplete(f"{str(label).capitalize()}: {errors[0]}" if label else str(errors[0]))
    return form.cleaned_data


def _reason(request: SignedIn) -> str:
    return str(_given(forms.ReasonForm(request.POST))["reason"])


def _key(request: SignedIn, name: str) -> int:
    text = request.POST.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _Incomplete("That row is not known.")
    return int(text)


def _mitigate(request: SignedIn, found: Incident) -> str:
    restoring.mitigate(incident=found, actor=request.user, reason=_reason(request))
    return "The incident is mitigated. The fix still has to be proved."


def _quarantine(request: SignedIn, found: Incident) -> str:
    quarantining.quarantine(incident=found, actor=request.user, reason=_reason(request))
    return f"{found.deployment.slug} is under quarantine: every gate refuses it."


def _fix(request: SignedIn, found: Incident) -> str:
    given = _given(forms.FixForm(request.POST, prefix="fix"))
    restoring.record_fix(incident=found, actor=request.user, description=str(given["description"]))
    return "The fix is recorded. Now both tests have to pass."


def _replay(request: SignedIn, found: Incident) -> str:
    made = restoring.replay(incident=found, actor=request.user)
    return f"The reproduction is queued as run {made.run_id}."


def _upload(request: SignedIn, found: Incident) -> str:
    given = _given(forms.ResultForm(request.POST, request.FILES, prefix="result"))
    sent = given["file"]
    assert isinstance(sent, UploadedFile)
    if sent.size is None or sent.size > 5_000_000:
        raise _Incomplete("The file has more than 5,000,000 bytes: attach the part that matters.")
    file = File(sent.name or "result", sent.read(), sent.content_type or "")
    made = restoring.upload_result(
        incident=found,
        actor=request.user,
        file=file,
        leaked=given["leaked"] == "yes",
        description=str(given["description"]),
    )
    return f"The result is kept under SHA-256 {made.evidence_id}."


def _ask_override(request: SignedIn, found: Incident) -> str:
    restoring.request_override(incident=found, actor=request.user, reason=_reason(request))
    return "The override waits for a second person, an approver."


def _approve(request: SignedIn, found: Incident) -> str:
    return _decide(request, found, approve=True)


def _refuse(request: SignedIn, found: Incident) -> str:
    return _decide(request, found, approve=False)


def _decide(request: SignedIn, found: Incident, *, approve: bool) -> str:
    override = get_object_or_404(found.overrides, pk=_key(request, "override"))
    restoring.decide_override(override=override, actor=request.user, approve=approve, note=_reason(request))
    return "The override is approved; it can be used once." if approve else "The override is refused."


def _release(request: SignedIn, found: Incident) -> str:
    made = restoring.release(incident=found, actor=request.user)
    return "Released by override: this stays visible." if made.override else "Released: both tests pass."


def _close(request: SignedIn, found: Incident) -> str:
    postmortem.close(incident=found, actor=request.user)
    return f"Incident {found.pk} is closed."


def _event(request: SignedIn, found: Incident) -> str:
    given = _given(forms.EventForm(request.POST, prefix="event"))
    replaced = request.POST.get("replaces")
    old = get_object_or_404(found.events, pk=_key(request, "replaces")) if replaced else None
    postmortem.put_event(incident=found, actor=request.user, replaces=old, **given)  # type: ignore[arg-type]
    return (
        "The timeline has its event; the version before stays to be read." if old else "The event is added."
    )


def _impact(request: SignedIn, found: Incident) -> str:
    given = _given(forms.ImpactForm(request.POST, prefix="impact"))
    postmortem.put_impact(incident=found, actor=request.user, **given)  # type: ignore[arg-type]
    return "The impact has its line."


def _count(request: SignedIn, found: Incident) -> str:
    lines = counting.count_impact(incident=found, actor=request.user)
    return f"Counted from the {lines[0].source}."


def _withdraw_event(request: SignedIn, found: Incident) -> str:
    postmortem.withdraw(line=get_object_or_404(found.events, pk=_key(request, "line")), actor=request.user)
    return "The event is withdrawn; it stays in the edit history."


def _withdraw_impact(request: SignedIn, found: Incident) -> str:
    line = get_object_or_404(found.impact_lines, pk=_key(request, "line"))
    postmortem.withdraw(line=line, actor=request.user)
    return "The line is withdrawn."


def _cause(request: SignedIn, found: Incident) -> str:
    given = _given(forms.CauseForm(request.POST, prefix="cause"))
    postmortem.add_cause(incident=found, actor=request.user, text=str(given["text"]))
    return "The cause is added."


def _withdraw_cause(request: SignedIn, found: Incident) -> str:
    postmortem.withdraw_cause(
        cause=get_object_or_404(found.causes, pk=_key(request, "line")), actor=request.user
    )
    return "The cause is withdrawn."


def _action(request: SignedIn, found: Incident) -> str:
    form = forms.ActionForm(
        request.POST,
        prefix="action",
        team=found.deployment.team,
        choices=following.choices(found.deployment),
    )
    postmortem.add_action(incident=found, actor=request.user, **_given(form))  # type: ignore[arg-type]
    return "The action item is added."


def _step(request: SignedIn, found: Incident) -> str:
    item = get_object_or_404(found.action_items, pk=_key(request, "item"))
    to = request.POST.get("to", "")
    reason = request.POST.get("reason", "")[:1_000]
    postmortem.step_action(item=item, to=to, actor=request.user, reason=reason)
    return f"“{item.title}” is {to}."


ACTS: Mapping[str, tuple[Act, str]] = {
    "mitigate": (_mitigate, "state"),
    "quarantine": (_quarantine, "state"),
    "fix": (_fix, "gate"),
    "replay": (_replay, "gate"),
    "upload": (_upload, "gate"),
    "ask-override": (_ask_override, "gate"),
    "approve": (_approve, "gate"),
    "refuse": (_refuse, "gate"),
    "release": (_release, "gate"),
    "close": (_close, "state"),
    "event": (_event, "timeline"),
    "withdraw-event": (_withdraw_event, "timeline"),
    "impact": (_impact, "impact"),
    "count": (_count, "impact"),
    "withdraw-impact": (_withdraw_impact, "impact"),
    "cause": (_cause, "causes"),
    "withdraw-cause": (_withdraw_cause, "causes"),
    "action": (_action, "actions"),
    "step": (_step, "actions"),
}
