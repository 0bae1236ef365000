"""Form that imports a published incident."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile

LARGEST_FILE = 1_000_000  # bytes


class ImportForm(forms.Form):
    file = forms.FileField(
        label="Incident file (YAML)",
        help_text="schema kvaudit.incident/1",
        error_messages={"required": "Choose a YAML file with one incident."},
    )

    def clean_file(self) -> UploadedFile[bytes]:
        file: UploadedFile[bytes] = self.cleaned_data["file"]
        if file.size is None or file.size > LARGEST_FILE:
            raise ValidationError(f"The file has more than {LARGEST_FILE:,} bytes: an incident is text.")
        return file
