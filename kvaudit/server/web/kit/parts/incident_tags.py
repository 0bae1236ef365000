"""What a page of a deployment says of its incidents."""

from __future__ import annotations

from django import template

from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents.models import Incident

register = template.Library()


@register.simple_tag
def lasting_incidents(deployment: Deployment) -> list[Incident]:
    """Those that are not closed, with ``quarantined``; newest first. One query."""
    rows = Incident.objects.lasting().filter(deployment=deployment).listed()
    return list(rows.order_by("-id")[:5])
