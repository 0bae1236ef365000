"""Form that saves a view."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms


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
