"""Forms of users, teams and tokens. Shape is checked here, meaning by the services."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Team, TokenScope, User
from kvaudit.server.accounts.roles import ALLOWS, Role
from kvaudit.server.accounts.services import team_slug
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit.fields import SlugsField

EVERYWHERE = "*"  # no slug
"""The choice of every team, where a role is given."""


class WhereField(forms.ChoiceField):
    """A team in which the giver manages accounts, or every team; cleans to (team, said): (None, False) where
    nothing was chosen."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(label="Where", **kwargs)
        self.teams: dict[str, Team] = {}

    def offer(self, giver: User, nothing: str) -> None:
        """``nothing`` stands first, so that no team, and not every one, is chosen by oversight."""
        teams = Team.objects.where_can(giver, "manage_accounts")
        self.teams = {team.slug: team for team in teams}
        every = [(EVERYWHERE, "every team")] if can(giver, "manage_accounts") else []
        self.choices = [("", nothing), *every, *((slug, slug) for slug in self.teams)]

    def clean(self, value: Any) -> tuple[Team | None, bool]:
        chosen = super().clean(value)
        return self.teams.get(chosen), bool(chosen)


def _role(**kwargs: Any) -> forms.ChoiceField:
    return forms.ChoiceField(
        label="Role",
        choices=[(role.value, f"{role.value}: {ALLOWS[role]}") for role in Role],
        **kwargs,
    )


class GrantForm(forms.Form):
    """A role in one team (replacing the one held there) or everywhere."""

    where = WhereField()
    role = _role()

    def __init__(self, *args: Any, giver: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _where(self).offer(giver, "choose")


class MemberForm(GrantForm):
    """Somebody who has an account already, by name: whoever manages one team does not see everybody's."""

    username = forms.CharField(max_length=150, label="User name")
    field_order = ("username", "where", "role")

    def clean_username(self) -> User:
        name = self.cleaned_data["username"]
        found = User.objects.filter(username=name, is_active=True).first()
        if found is None:
            raise ValidationError(
                "There is no active user of that name; an administrator of every team makes new ones."
            )
        return found


class UserForm(forms.Form):
    """A new user; the service checks the name."""

    username = forms.CharField(
        max_length=150, label="User name", help_text="Letters, digits and @ . + - _; it does not change."
    )
    email = forms.EmailField(required=False, max_length=254, label="E-mail address")
    where = WhereField(required=False)
    role = _role()

    def __init__(self, *args: Any, giver: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _where(self).offer(giver, "no role yet")


class TeamForm(forms.Form):
    """A new team. The slug follows from the name unless it is given."""

    name = forms.CharField(max_length=200, help_text="As people read it, for instance Core Serving.")
    slug = forms.SlugField(
        required=False,
        max_length=100,
        help_text="For addresses, fleet files and plans; it does not change. Empty: made from the name.",
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        try:
            slug = team_slug(cleaned["slug"] or cleaned["name"])
        except ValueError:
            raise ValidationError({"slug": "Give a slug: the name has no Latin letters or digits."}) from None
        if Team.objects.filter(slug=slug).exists():
            raise ValidationError({"slug": f"There is a team {slug} already."})
        return {**cleaned, "slug": slug}


class RenameForm(forms.Form):
    name = forms.CharField(max_length=200)


class TokenForm(forms.Form):
    """A token of one's own."""

    LIVES = (("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("never", "until it is revoked"))

    name = forms.CharField(max_length=100, help_text="Where it is used, for instance the pipeline's name.")
    scopes = forms.MultipleChoiceField(
        label="What it may do",
        choices=[
            (TokenScope.GATE.value, "ask the gate whether a deployment may take traffic"),
            (TokenScope.READ.value, "read deployments, results and compliance"),
        ],
        widget=forms.CheckboxSelectMultiple(attrs={"class": "choices"}),
    )
    team = forms.ModelChoiceField(
        Team.objects.none(),
        required=False,
        to_field_name="slug",
        empty_label="every team that you see",
        label="Only for team",
    )
    deployments = SlugsField(
        may="see",
        required=False,
        label="Only for deployments",
        help_text="Names, one a line. Empty: all of them.",
    )
    lives = forms.ChoiceField(choices=LIVES, initial="90", label="Valid for")

    def __init__(self, *args: Any, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        team, deployments = self.fields["team"], self.fields["deployments"]
        assert isinstance(team, forms.ModelChoiceField)
        assert isinstance(deployments, SlugsField)
        seen: QuerySet[Team] = Team.objects.visible_to(owner)
        team.queryset = seen
        deployments.allowed = Deployment.objects.visible_to(owner).active()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if team := cleaned.get("team"):
            others = [
                deployment.slug
                for deployment in cleaned.get("deployments") or []
                if deployment.team_id != team.pk
            ]
            if others:
                self.add_error("deployments", f"Not of team {team.slug}: {', '.join(others[:5])}.")
        return cleaned

    def expires_at(self) -> datetime | None:
        """Once the form is valid."""
        days = self.cleaned_data["lives"]
        return None if days == "never" else clock.now() + timedelta(days=int(days))


def _where(form: forms.Form) -> WhereField:
    field = form.fields["where"]
    assert isinstance(field, WhereField)
    return field
