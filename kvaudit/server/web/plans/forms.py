"""Forms of plans. The plan form leads from a posted form to a `PlanSpec` and back; shape is checked here, meaning by
the service, whose sentence comes back as the form's problem."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from kvaudit.auditor import checks as known_checks
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.models import Where
from kvaudit.server.audits.schedule.plans import PlanSpec, kind_of
from kvaudit.server.audits.schedule.times import Schedule
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit.fields import SlugsField, zone_choices
from kvaudit.server.web.kit.parts import windows
from kvaudit.server.web.plans import lengths

CHECKS_BY_KIND = (
    ("Passive: only reads", [name for name in known_checks.MODULES if name in known_checks.PASSIVE]),
    (
        "Active: sends prompts as tenants",
        [name for name in known_checks.MODULES if name not in known_checks.PASSIVE],
    ),
)


class LengthField(forms.CharField):
    """A length of time; cleans to seconds or None."""

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            return lengths.parse(text)
        except ValueError as problem:
            raise ValidationError(str(problem)) from problem

    def prepare_value(self, value: Any) -> Any:
        return lengths.written(value) if isinstance(value, int) else value


class PlanForm(forms.Form):
    """One plan. Exactly one of ``interval`` and ``cron`` makes a schedule."""

    name = forms.CharField(max_length=120)
    checks = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple(attrs={"class": "choices"}),
        help_text="Of one kind: active checks wait for their window, passive ones need not.",
    )
    deployments = SlugsField(required=False, help_text="Names, one a line.")
    team = forms.ModelChoiceField(
        Team.objects.none(), required=False, to_field_name="slug", empty_label="any"
    )
    engine = forms.SlugField(
        required=False,
        max_length=20,
        help_text="With a team or alone: every deployment declared with this engine.",
    )
    interval = LengthField(
        label="Every",
        required=False,
        max_length=20,
        help_text="For instance 1 h (usual), 15 min or 1 d. Leave it empty where you give cron.",
    )
    cron = forms.CharField(required=False, max_length=120, help_text="Five fields, for instance 0 2 * * *.")
    zone = forms.ChoiceField(label="Time zone of cron")
    jitter = LengthField(required=False, max_length=20, help_text="Spreads the start by up to this long.")
    windows = forms.CharField(
        required=False,
        max_length=4_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="When audits may start, one a line: mon-fri 22:00-06:00 Europe/Berlin. Empty: any time.",
    )
    budget_seconds = LengthField(label="Time budget of a run", required=False, max_length=20)
    budget_tokens = forms.IntegerField(
        label="Prompt-token budget of a run", required=False, min_value=1, max_value=10**12
    )
    where = forms.ChoiceField(
        label="The replicas serve meanwhile",
        choices=[(Where.PRODUCTION.value, "Production"), *Where.choices[1:]],
        required=False,
        help_text="Without traffic all that is served is ours: then the canary asks at the boundary above all, and "
        "qualifies the build.",
    )
    enabled = forms.BooleanField(required=False, initial=True, label="Switched on")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plannable = Deployment.objects.where_can(user, "edit_plans").active()
        deployments = self._field(SlugsField, "deployments")
        deployments.allowed = plannable
        deployments.offer()
        teams = self._field(forms.ModelChoiceField, "team")
        teams.queryset = Team.objects.filter(
            pk__in=[team.pk for team in Team.objects.visible_to(user) if can(user, "edit_plans", team)]
        )
        self._field(forms.MultipleChoiceField, "checks").choices = [
            (title, [(name, f"{name}: {known_checks.describe(name).title}") for name in names])
            for title, names in CHECKS_BY_KIND
        ]
        self._field(forms.ChoiceField, "zone").choices = zone_choices()
        self.user = user

    def _field(self, kind: type[Any], name: str) -> Any:
        field = self.fields[name]
        assert isinstance(field, kind)
        return field

    def clean_windows(self) -> list[dict[str, Any]]:
        try:
            return windows.parse(self.cleaned_data["windows"])
        except windows.WindowProblem as problem:
            raise ValidationError(str(problem)) from problem

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("engine") and not cleaned.get("team") and not can(self.user, "edit_plans"):
            self.add_error(
                "engine", "An engine without a team reaches every team: that takes a fleet-wide operator."
            )
        if len({kind_of(check) for check in cleaned.get("checks", ())}) > 1:
            self.add_error(
                "checks", "Passive and active checks go into plans of their own: pick of one kind."
            )
        if not self.errors.keys() & {"deployments", "team", "engine"} and not any(
            cleaned.get(name) for name in ("deployments", "team", "engine")
        ):
            self.add_error(
                "deployments", "A plan selects deployments, a team or an engine: give at least one."
            )
        if self.errors.keys() & {"cron", "interval", "zone"}:
            pass
        elif bool(cleaned["cron"]) == (cleaned["interval"] is not None):
            self.add_error(
                "interval",
                "A plan runs either every so often or by cron: empty one of the two."
                if cleaned["cron"]
                else "When? Say how often (for instance 1 h), or give cron.",
            )
        else:
            schedule = Schedule(" ".join(cleaned["cron"].split()), cleaned["zone"], cleaned["interval"])
            if problem := schedule.problem():
                self.add_error("cron", problem)
        if not self.errors and (problem := self.spec().problem()):
            raise ValidationError(problem)
        return cleaned

    def spec(self) -> PlanSpec:
        """What the form says, once it is valid."""
        said = self.cleaned_data
        return PlanSpec(
            name=said["name"],
            checks=said["checks"],
            deployments=said["deployments"],
            team=said["team"],
            engine=said["engine"],
            cron=" ".join(said["cron"].split()),
            zone=said["zone"],
            interval=said["interval"],
            jitter=said["jitter"] or 0,
            windows=said["windows"],
            budget_seconds=said["budget_seconds"],
            budget_tokens=said["budget_tokens"],
            where=said["where"] or Where.PRODUCTION.value,
            enabled=said["enabled"],
        )


def initial_of(spec: PlanSpec) -> dict[str, Any]:
    """A form's first values for a plan that exists."""
    return {
        "name": spec.name,
        "checks": list(spec.checks),
        "deployments": "\n".join(sorted(deployment.slug for deployment in spec.deployments)),
        "team": spec.team.slug if spec.team else None,
        "engine": spec.engine,
        "interval": spec.interval,
        "cron": spec.cron,
        "zone": spec.zone,
        "jitter": spec.jitter or None,
        "windows": windows.lines(spec.windows),
        "budget_seconds": spec.budget_seconds,
        "budget_tokens": spec.budget_tokens,
        "where": spec.where,
        "enabled": spec.enabled,
    }


class PauseForm(forms.Form):
    """Why probes are paused, or consent is given."""

    reason = forms.CharField(required=False, max_length=500, widget=forms.Textarea(attrs={"rows": 2}))
