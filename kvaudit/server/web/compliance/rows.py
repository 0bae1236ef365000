"""Rows of the compliance matrix: each item's mark, linked to its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from html import escape

from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from kvaudit.server.audits.state.bulk_reads import micros
from kvaudit.server.audits.state.tiers import Assessment, Tier
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.items import Item
from kvaudit.server.checklists.matrix import MatrixRow
from kvaudit.server.web.kit import badges, times, untrusted
from kvaudit.server.web.kit.parts.item_badges import NAMES, WORDS, shape

LONG = {
    Status.PASS: "passed by its checks",
    Status.ATTESTED: "by attestation",
    Status.WAIVED: "by waiver",
    Status.NOT_APPLICABLE: "not applicable",
    Status.INCONCLUSIVE: "inconclusive: not known",
    Status.ERROR: "error: could not be audited",
    Status.FAIL: "fail",
}


def drawn(
    row: MatrixRow, said: Assessment, columns: Sequence[Item], suffix: str, now: datetime
) -> SafeString:
    """A row of the matrix. By hand: a page has a hundred, of more than a thousand cells. Ages are told from ``now``;
    ``suffix`` is the query string of the moment that is shown."""
    each = row.deployment
    address = escape(reverse("deployment", args=[each.slug]))
    owner = f" · {untrusted.inline(each.owner, 60)}" if each.owner else ""
    why = "" if said.tier is Tier.OK else f"<br>{_escaped(said.reason)}"
    late = ""
    if row.overdue_since:
        late = (
            f'<div class="small"><span class="warn">overdue</span> {times.age(row.overdue_since, now)}</div>'
        )
    return SafeString(
        f'<tr>\n  <th scope="row"><a href="{address}">{untrusted.inline(each.slug, 60)}</a>'
        f'<div class="small soft">{untrusted.inline(each.team.slug, 40)}{owner}</div></th>\n'
        f'  <td data-label="Status">{badges.of_tier(said.tier)}'
        f'<div class="small soft">{row.controls}{why}</div>{late}</td>\n'
        f"  {_cells(row, columns, address, escape(suffix), now)}\n</tr>\n"
    )


def _cells(row: MatrixRow, columns: Sequence[Item], home: str, end: str, now: datetime) -> str:
    """Each linked to its evidence below ``home``, the deployment's address, escaped as ``end`` is; an item of
    another team is blank."""
    at = micros(now)
    shown = []
    for item in columns:
        cell = row.cells.get(item.key)
        if cell is None or cell.item.team_id != item.team_id:
            shown.append("<td></td>")
            continue
        status = cell.status
        key, label = _escaped(item.key), _escaped(f"{item.key} {item.title}")
        extra = ""
        if cell.warn and status is Status.PASS:
            named = ", ".join(dict.fromkeys(each.check for each in cell.intervals if each.warn))
            extra = f'<span class="warn">warning: {_escaped(named)}</span>'
        elif cell.leak and cell.waiver is not None:
            extra = '<span class="warn">not waivable</span>'
        elif status in (Status.WAIVED, Status.ATTESTED) and cell.until is not None:
            extra = f'<span class="until">to {timezone.localtime(cell.until):%Y-%m-%d}</span>'
        shown.append(
            f'<td data-label="{label}"><a class="cell" href="{home}items/{key}/{end}" '
            f'title="{label}: {LONG[status]}; {_escaped(cell.reason)}">'
            f'<span class="verdict verdict-{NAMES[status]}">{shape(status)}'
            f'<span class="word">{WORDS[status]}</span></span>'
            f'<span class="soft">{times.brief(timedelta(microseconds=at - cell.began))}</span></a>{extra}</td>'
        )
    return "".join(shown)


@lru_cache(maxsize=2_000)
def _escaped(text: str) -> str:
    """For attributes. Cells repeat few texts."""
    return escape(untrusted.plain(text, 600))
