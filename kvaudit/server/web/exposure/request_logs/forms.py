"""Form that imports a request log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

FILE_HELP = (
    "CSV with a first line of column names, or JSON lines: time, prompt_tokens, tenant, id and, optional, "
    "prefill_seconds. Up to 2 GB; it waits encrypted for a worker, is read once and then deleted. Of tenants and ids "
    "only hashes are kept, made with a key of this installation."
)


class _LogField(forms.FileField):
    """Read as it comes (`LogUpload`), so there is nothing of it left to clean."""

    def clean(self, data: Any, initial: Any = None) -> UploadedFile[bytes] | None:
        return None


def _day(label: str) -> forms.CharField:
    return forms.CharField(required=False, label=label, widget=forms.TextInput(attrs={"type": "date"}))


def _tokens(label: str) -> forms.CharField:
    return forms.CharField(
        required=False,
        label=label,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "maxlength": 20}),
    )


class LogForm(forms.Form):
    """The log and which of its requests count; what window and lengths mean, the view asks."""

    nothing = "Nothing was imported."

    file = _LogField(
        label="The log",
        help_text=FILE_HELP,
        widget=forms.FileInput(attrs={"accept": ".csv,.jsonl,.ndjson,.json,.txt,.log"}),
    )
    to = _day("To the end of")
    low = _tokens("From this many prompt tokens")
    high = _tokens("and below")

    field_order = ("file", "from", "to", "low", "high")

    def __init__(self, data: Mapping[str, str]) -> None:
        super().__init__(data, auto_id="%s")
        self.fields["from"] = _day("From")
        self.order_fields(self.field_order)
