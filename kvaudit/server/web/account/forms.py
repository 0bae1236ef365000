"""Form of the viewer's time zone."""

from __future__ import annotations

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
