"""Form of a key: a tenant's or a node's."""

from __future__ import annotations

from typing import Any

from django import forms


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
