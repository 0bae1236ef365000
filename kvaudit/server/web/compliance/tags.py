"""Tags of the compliance matrix. Thin: what they do lives in `kvaudit.server.web.compliance.rows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.safestring import SafeString

from kvaudit.server.checklists.items import Item
from kvaudit.server.checklists.matrix import MatrixRow
from kvaudit.server.web.compliance import rows

register = template.Library()


@register.simple_tag(takes_context=True)
def compliance_row(context: Mapping[str, Any], row: MatrixRow, columns: Sequence[Item]) -> SafeString:
    return rows.drawn(
        row, context["said"][row.deployment.pk], columns, context.get("suffix", ""), context["moment"]
    )
