"""Form of the viewer's time zone."""

from __future__ import annotations

from django import forms

from kvaudit.server.web.kit.fields import zone_choices


class ZoneForm(forms.Form):
    """The viewer's time zone."""

    zone = forms.ChoiceField(label="Time zone", help_text="IANA name, for instance Europe/Berlin.")

    def __init__(self, *args: object, unset: bool = False, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        field = self.fields["zone"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = zone_choices()
        if unset:
            field.widget.attrs["data-unset"] = ""
