"""Form that opens a sealed text."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError

from kvaudit.server.web.kit import untrusted

SHORTEST, LONGEST = 8, 200  # characters
TOO_SHORT = f"Say why, in at least {SHORTEST} characters."


class ReasonForm(forms.Form):
    """Why somebody reads what may be a customer's; the record keeps it."""

    nothing = "Nothing was opened."

    reason = forms.CharField(
        label="Why do you need to read it?",
        error_messages={"required": TOO_SHORT},
        widget=forms.TextInput(attrs={"minlength": SHORTEST, "maxlength": LONGEST, "autocomplete": "off"}),
    )

    def clean_reason(self) -> str:
        typed: str = self.cleaned_data["reason"]
        if len(typed) > LONGEST:
            raise ValidationError(f"Say why, in at most {LONGEST} characters: these are {len(typed):,}.")
        reason = untrusted.query_text(typed, LONGEST)
        if len(reason) < SHORTEST:
            raise ValidationError(TOO_SHORT)
        return reason
