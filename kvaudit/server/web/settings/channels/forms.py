"""The form of a new channel. Shape is checked here, the address by the service."""

from __future__ import annotations

from typing import Any

from django import forms

from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.notify.channels import KINDS, BadChannel, choices
from kvaudit.server.notify.models import Event, every_event


class ChannelForm(forms.Form):
    """A channel of any kind. Without a team it hears of every deployment, which takes an administrator of
    every team."""

    name = forms.CharField(max_length=100, help_text="For instance On call. Shown on pages and in messages.")
    kind = forms.ChoiceField(choices=choices)
    address = forms.CharField(
        max_length=2_000,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=f"{', '.join(kind.address_help for kind in KINDS.values())}. "
        "Stored encrypted: pages show the host alone.",
    )
    team = forms.ModelChoiceField(
        Team.objects.none(),
        required=False,
        to_field_name="slug",
        help_text="Whose deployments it is told of.",
    )
    events = forms.MultipleChoiceField(
        choices=[(event, Event(event).label) for event in every_event()],
        initial=every_event,
        widget=forms.CheckboxSelectMultiple,
        label="Is told when",
    )
    secret = forms.CharField(
        required=False,
        min_length=16,
        max_length=200,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=" ".join(kind.secret_help for kind in KINDS.values()),
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["team"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = Team.objects.where_can(user, "manage_channels").order_by("slug")
        everywhere = can(user, "manage_channels")
        field.required = not everywhere
        field.empty_label = "every team" if everywhere else "choose a team"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("kind") and "secret" in cleaned:
            try:
                KINDS[cleaned["kind"]].secret(cleaned["secret"])
            except BadChannel as problem:
                self.add_error("secret", str(problem))
        return cleaned
