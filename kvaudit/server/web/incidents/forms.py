"""Forms of the incident pages. Each checks shape; meaning is checked by the services."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile

from kvaudit.server import clock
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.incidents.models import Severity
from kvaudit.server.incidents.models.narrative import ActionState, Certainty, Confidence, Measure
from kvaudit.server.incidents.postmortem import SECTIONS

MARKDOWN = "Markdown. No HTML, no pictures."
LARGEST_RESULT = 5_000_000  # bytes
EARLIEST_YEAR, LATEST_YEAR = 2000, 2199


def _long(label: str, *, rows: int = 6, required: bool = False, help_text: str = MARKDOWN) -> forms.CharField:
    return forms.CharField(
        label=label,
        required=required,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": rows}),
        help_text=help_text,
        strip=True,
    )


class OpenForm(forms.Form):
    """What a person reports."""

    deployment = forms.ChoiceField()
    title = forms.CharField(max_length=200)
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.HIGH)
    affected_from = forms.IntegerField(
        label="Shortest affected length", required=False, min_value=1, max_value=2**40, help_text="tokens"
    )
    summary = _long("What happened")
    quarantine = forms.BooleanField(
        required=False, label="Quarantine the deployment now: no gate lets it take traffic"
    )

    def __init__(self, *args: Any, slugs: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["deployment"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(slug, slug) for slug in slugs]


class SectionsForm(forms.Form):
    """The texts of the postmortem. ``seen`` is the digest of what was there when the page was opened."""

    title = forms.CharField(max_length=200)
    seen = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, heading in SECTIONS.items():
            self.fields[name] = _long(heading, rows=8)


class EventForm(forms.Form):
    """One line of the timeline. The moment is in the viewer's zone unless it carries its own offset."""

    at = forms.DateTimeField(
        label="When",
        help_text="2026-09-09 14:40 in your zone; where clocks change, write the offset: 2026-10-25T02:30+01:00.",
    )
    text = forms.CharField(label="What happened", max_length=4_000, widget=forms.Textarea(attrs={"rows": 3}))
    source = forms.CharField(required=False, max_length=500, help_text="who says so")
    confidence = forms.ChoiceField(choices=Confidence.choices)

    def clean_at(self) -> datetime:
        at: datetime = self.cleaned_data["at"]
        if at > clock.now():
            raise ValidationError("A timeline holds what has happened: that moment is still to come.")
        if at.year < EARLIEST_YEAR:
            raise ValidationError(f"That is before {EARLIEST_YEAR}: choose a sensible date.")
        return at


class ImpactForm(forms.Form):
    measure = forms.ChoiceField(label="What", choices=Measure.choices)
    certainty = forms.ChoiceField(choices=Certainty.choices, initial=Certainty.UNKNOWN)
    statement = forms.CharField(max_length=500)
    source = forms.CharField(required=False, max_length=500, help_text="a count, a log, a run")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        unknown = cleaned.get("certainty", Certainty.UNKNOWN) == Certainty.UNKNOWN
        if not unknown and not cleaned.get("source") and "source" not in self.errors:
            self.add_error("source", "A known or estimated number needs its source: a count, a log, a run.")
        return cleaned


class CauseForm(forms.Form):
    text = forms.CharField(label="Cause", max_length=4_000, widget=forms.Textarea(attrs={"rows": 3}))


class ActionForm(forms.Form):
    title = forms.CharField(label="What is to be done", max_length=300)
    owner = forms.ModelChoiceField(queryset=User.objects.none(), to_field_name="username")
    due = forms.DateField(widget=forms.DateInput(attrs={"type": "date"}))
    enforced_by = forms.ChoiceField(
        label="Enforced by", help_text="what fails if this is undone; it reopens the item by itself"
    )

    def __init__(self, *args: Any, team: Team, choices: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owner, enforced = self.fields["owner"], self.fields["enforced_by"]
        assert isinstance(owner, forms.ModelChoiceField)
        assert isinstance(enforced, forms.ChoiceField)
        owner.queryset = User.objects.filter(is_active=True, memberships__team=team).order_by("username")
        enforced.choices = choices

    def clean_due(self) -> date:
        due: date = self.cleaned_data["due"]
        if not EARLIEST_YEAR <= due.year <= LATEST_YEAR:
            raise ValidationError(f"Choose a date between {EARLIEST_YEAR} and {LATEST_YEAR}.")
        return due


class ReasonForm(forms.Form):
    """An act that needs its reason; ``most`` characters of it are kept."""

    reason = forms.CharField(widget=forms.Textarea(attrs={"rows": 2}))

    def __init__(self, *args: Any, label: str, most: int, help_text: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"] = forms.CharField(
            label=label, max_length=most, widget=forms.Textarea(attrs={"rows": 2}), help_text=help_text
        )


class StepForm(forms.Form):
    """An action item is done, dropped or open again."""

    reason = forms.CharField(label="Note", required=False, max_length=1_000)
    to = forms.ChoiceField(
        choices=ActionState.choices,
        error_messages={"invalid_choice": "An action item is done, dropped or open."},
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if (
            cleaned.get("to") == ActionState.DROPPED
            and not cleaned.get("reason")
            and "reason" not in self.errors
        ):
            self.add_error("reason", "Say why it is dropped.")
        return cleaned


class FixForm(forms.Form):
    description = forms.CharField(
        label="What was fixed",
        max_length=4_000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Every test must begin after this. You may not upload the external result then.",
    )


class ResultForm(forms.Form):
    """An external script's output. ``leaked`` is asked, never guessed from the file."""

    file = forms.FileField(label="The script's whole output", help_text="kept under its SHA-256")
    leaked = forms.ChoiceField(
        label="What it shows", choices=[("", "choose"), ("no", "no leak any more"), ("yes", "still a leak")]
    )
    description = forms.CharField(label="Which script, run by whom, against what", max_length=1_000)

    def clean_file(self) -> UploadedFile[bytes]:
        file: UploadedFile[bytes] = self.cleaned_data["file"]
        if file.size is None or file.size > LARGEST_RESULT:
            raise ValidationError(
                f"The file has more than {LARGEST_RESULT:,} bytes: attach the part that matters."
            )
        return file
