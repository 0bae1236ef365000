"""Forms of the pages. Each checks shape; meaning is checked by the services, whose sentences come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zoneinfo import available_timezones

from django import forms


class ZoneForm(forms.Form):
    """The viewer's time zone."""

    zone = forms.ChoiceField(label="Time zone", help_text="IANA name, for instance Europe/Berlin.")

    def __init__(self, *args: object, unset: bool = False, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        names = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
        field = self.fields["zone"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in ("UTC", *names)]
        if unset:
            field.widget.attrs["data-unset"] = ""


class KeyForm(forms.Form):
    """A tenant's key or a node's header. Never bound back into the page: the field renders empty."""

    whose = forms.ChoiceField()
    key = forms.CharField(
        required=False,
        max_length=8_000,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="Sent as a bearer token. It can be replaced or removed, never read again.",
    )
    header = forms.CharField(
        required=False,
        max_length=100,
        help_text="Only where the key goes into another header than Authorization, for instance x-api-key.",
    )
    remove = forms.BooleanField(required=False, label="Remove the stored key")

    def __init__(self, *args: object, choices: list[tuple[str, str]], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        field = self.fields["whose"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        key, remove = cleaned.get("key", "").strip(), cleaned.get("remove")
        if not key and not remove and "key" not in self.errors:
            self.add_error("key", "Enter the key, or tick that the stored one is to be removed.")
        if key and remove:
            self.add_error("remove", "Either a new key or none: not both.")
        cleaned["key"] = key
        return cleaned


class PauseForm(forms.Form):
    """Why probes are paused, or consent is given."""

    reason = forms.CharField(required=False, max_length=500, widget=forms.Textarea(attrs={"rows": 2}))


class SaveViewForm(forms.Form):
    """A name for a page's filters; the service checks the rest."""

    page = forms.CharField(widget=forms.HiddenInput)
    query = forms.CharField(required=False, widget=forms.HiddenInput)
    name = forms.CharField(max_length=80, error_messages={"required": "Give the view a name."})
    share = forms.ChoiceField(
        required=False,
        label="Listed for",
        error_messages={"invalid_choice": "You see no team of that name to share the view with."},
    )

    def __init__(self, *args: Any, teams: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["share"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", "only me"), *((slug, f"me and {slug}") for slug in teams)]
