"""Tags of checklist items. Thin: what they do lives in `kvaudit.server.web.kit.parts.item_badges`."""

from __future__ import annotations

from django import template
from django.utils.safestring import SafeString

from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.web.kit.parts import item_badges

register = template.Library()


@register.simple_tag
def standing(status: Status | str, word: str = "") -> SafeString:
    return item_badges.mark(Status(status), word)


@register.simple_tag
def standing_shape(status: Status | str) -> SafeString:
    return item_badges.shape(Status(status))
