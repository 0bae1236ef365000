"""Form fields of several pages."""

from __future__ import annotations

import re
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.core.exceptions import ValidationError

from kvaudit.server.fleet.models import Deployment

MOST_OFFERED = 300
"""Deployments that are offered as a list; more are named by hand."""


class SlugsField(forms.CharField):
    """Slugs of deployments, by line, comma or space; cleans to the ``allowed`` deployments, those that one
    ``may`` plan, or see."""

    def __init__(self, *, may: str = "plan", **kwargs: Any) -> None:
        super().__init__(widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}), **kwargs)
        self.may = may
        self.allowed = Deployment.objects.none()

    def offer(self) -> None:
        """Let them be picked from a list instead of typed, where they are few enough for one."""
        slugs = list(self.allowed.order_by("slug").values_list("slug", flat=True)[: MOST_OFFERED + 1])
        if slugs and len(slugs) <= MOST_OFFERED:
            rows = max(2, min(len(slugs), 8))
            self.widget = forms.SelectMultiple(attrs={"size": rows}, choices=[(slug, slug) for slug in slugs])
            self.help_text = "Hold Ctrl (on a Mac ⌘) to pick several or to take one back."

    def prepare_value(self, value: Any) -> Any:
        if isinstance(self.widget, forms.SelectMultiple) and isinstance(value, str):
            return _slugs(value)
        return value

    def clean(self, value: Any) -> list[Deployment]:
        if isinstance(value, (list, tuple)):
            value = "\n".join(map(str, value))
        wanted = _slugs(str(super().clean(value) or ""))
        if len(wanted) > 2_000:
            raise ValidationError("At most 2,000 deployments can be named: select a team instead.")
        found = {each.slug: each for each in self.allowed.filter(slug__in=wanted).select_related("team")}
        unknown = [slug for slug in wanted if slug not in found]
        if unknown:
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise ValidationError(
                f"There is no deployment that you may {self.may} called {', '.join(unknown[:5])}{more}."
            )
        return [found[slug] for slug in wanted]


def _slugs(text: str) -> list[str]:
    return [slug for slug in dict.fromkeys(re.split(r"[\s,]+", text.strip())) if slug]


def zone_choices() -> list[tuple[str, str]]:
    """Time zones by the names that people know, UTC first."""
    names = sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))
    return [(name, name) for name in ("UTC", *names)]
