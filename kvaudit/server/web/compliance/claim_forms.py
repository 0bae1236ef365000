"""Forms of attestations, waivers and a team's own items. Shape is checked here, meaning by the services,
whose sentences come back as the form's problem."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone

from kvaudit.server import clock
from kvaudit.server.checklists import time_limits
from kvaudit.server.checklists.attestations import File
from kvaudit.server.checklists.items import DISAGGREGATED, UNIFIED
from kvaudit.server.checklists.own_items import ItemSpec, checks_to_choose


class UntilField(forms.DateField):
    """The last day on which a claim holds, in the viewer's zone; cleans to the instant it ends."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"), **kwargs)

    def clean(self, value: Any) -> Any:
        day: date | None = super().clean(value)
        if day is None:
            return None
        if day.year > 2_199:
            raise ValidationError("Choose a sensible date.")
        return datetime.combine(day + timedelta(days=1), time(0), tzinfo=timezone.get_current_timezone())


def last_day(longest: timedelta) -> date:
    """The last day that a claim of at most this length may be given, in the viewer's zone."""
    return (timezone.localtime(clock.now() + longest) - timedelta(days=1)).date()


class AttestForm(forms.Form):
    """A statement with its evidence."""

    statement = forms.CharField(
        max_length=4_000,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="What holds, how you know, and for which configuration. It is shown under your name.",
    )
    file = forms.FileField(
        required=False,
        label="Evidence as a file",
        help_text=f"Kept unchanged under its SHA-256, at most {time_limits.LARGEST_EVIDENCE // 1_000_000} MB. "
        "No keys and no customers' text.",
    )
    link = forms.CharField(
        required=False,
        max_length=500,
        label="Evidence as a link",
        widget=forms.URLInput(),
        help_text="A file or a link is needed; both may be given.",
    )
    until = UntilField(label="Holds until", help_text="The last day; the item re-opens by itself afterwards.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["until"].widget.attrs["max"] = last_day(time_limits.longest_attestation()).isoformat()

    def evidence(self) -> File | None:
        """The attached file, read. Too large ones are refused by the service without reading further."""
        upload = self.cleaned_data.get("file")
        if not upload:
            return None
        return File(
            upload.name or "", upload.read(time_limits.LARGEST_EVIDENCE + 1), upload.content_type or ""
        )


class WaiveForm(forms.Form):
    """A request for leave."""

    reason = forms.CharField(
        max_length=4_000,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="Why the item cannot be met now, and what protects tenants meanwhile.",
    )
    until = UntilField(label="Until")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        longest = time_limits.longest_waiver()
        self.fields["until"].widget.attrs["max"] = last_day(longest).isoformat()
        self.fields["until"].help_text = f"The last day, at most {longest.days} days ahead."


class NoteForm(forms.Form):
    """Why a request is approved or refused, or a claim ended."""

    note = forms.CharField(
        required=False, max_length=500, widget=forms.Textarea(attrs={"rows": 2}), label="Reason"
    )


class ItemForm(forms.Form):
    """One of a team's own items."""

    key = forms.CharField(max_length=12, help_text="Short: it heads a column. For instance K1.")
    title = forms.CharField(max_length=120)
    rule = forms.CharField(max_length=2_000, widget=forms.Textarea(attrs={"rows": 4}))
    checks = forms.MultipleChoiceField(
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="All of them must pass. None: the item can only be attested.",
    )
    attestable = forms.BooleanField(
        required=False, initial=True, label="An attestation may stand in where no check has failed"
    )
    applies_to = forms.ChoiceField(
        required=False,
        label="For",
        choices=[("", "every deployment"), (DISAGGREGATED, "disaggregated ones"), (UNIFIED, "unified ones")],
    )
    remedy = forms.CharField(
        required=False,
        max_length=2_000,
        label="What to do when it fails",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    standard = forms.CharField(required=False, max_length=100, help_text="For instance OWASP AISVS.")
    standard_version = forms.CharField(required=False, max_length=40)
    requirement = forms.CharField(required=False, max_length=100)
    requirement_text = forms.CharField(
        required=False, max_length=4_000, widget=forms.Textarea(attrs={"rows": 3})
    )

    def __init__(self, *args: Any, fixed_key: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["checks"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(name, name) for name in checks_to_choose()]
        if fixed_key:
            self.fields["key"].disabled = True
            self.fields["key"].initial = fixed_key
            self.fields["key"].help_text = "Attestations and waivers name it, so it stays."

    def spec(self) -> ItemSpec:
        """What the form says, once it is valid."""
        said = self.cleaned_data
        return ItemSpec(**{name: said[name] for name in ItemSpec.__dataclass_fields__})
