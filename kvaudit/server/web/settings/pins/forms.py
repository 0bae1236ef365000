"""The pin form: an engine, and a version or a range as people write it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from kvaudit.auditor.advisories.pins import parse_pin
from kvaudit.auditor.advisories.versions import parse_build


class PinForm(forms.Form):
    """``engines`` are those that may be chosen. A bare version means exactly that one."""

    engine = forms.ChoiceField()
    wanted = forms.CharField(
        label="Allowed versions",
        max_length=100,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="A range such as >=0.5.22 or >=0.5.22,<0.6, or one version such as 0.5.22.",
    )
    reason = forms.CharField(
        required=False,
        max_length=500,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="Shown beside the pin under your name.",
    )

    def __init__(self, *args: Any, engines: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["engine"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in engines]

    def clean_wanted(self) -> str:
        text = self.cleaned_data["wanted"].strip()
        build = parse_build(text)
        if text[:1].isdigit() or text[:1] in ("v", "V"):
            if build.kind not in ("release", "candidate") or build.low is None:
                raise ValidationError(
                    "That is no released version: write one such as 0.5.22, or a range such as >=0.5.22."
                )
            text = f"=={build.low}"
        try:
            return parse_pin(f"engine{text}").text
        except ValueError:
            raise ValidationError(
                "That is no range of versions: write one such as >=0.5.22, >=0.5.22,<0.6 or ~=0.5.22."
            ) from None
