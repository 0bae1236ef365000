"""Rows of the fleet's table. By hand: a page has fifty, each of some forty parts, and a template takes three
times as long. What people and engines wrote goes through `foreign`, names of ours are escaped, all else is a constant
or a number."""

from __future__ import annotations

from datetime import datetime
from html import escape
from urllib.parse import quote

from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from kvaudit.auditor import checks
from kvaudit.server.audits.state.deployment_status import CheckNow
from kvaudit.server.web.fleet.page import Build, FleetRow, IncidentMark
from kvaudit.server.web.kit import badges, times, untrusted
from kvaudit.server.web.kit.parts import pool_bar


def drawn(row: FleetRow, now: datetime) -> SafeString:
    """One row; ages are told from ``now``."""
    return mark_safe(  # noqa: S308 - see above
        f'<tr>\n  <th scope="row">{_name(row)}</th>\n'
        f'  <td class="wide" data-label="Status">{_status(row, now)}</td>\n'
        f'  <td class="wide" data-label="KV pool / context">{pool_bar.drawn(row.bar) if row.bar else _UNREAD}</td>\n'
        f'  <td data-label="Controls met">{_controls(row)}</td>\n'
        f'  <td data-label="Audits">{_audits(row, now)}</td>\n</tr>\n'
    )


MOST_WARNINGS = 2
_UNREAD = '<span class="unknown">not read yet</span>'


def _name(row: FleetRow) -> str:
    address = escape(reverse("deployment", args=[row.slug]))
    model = f'<div class="small soft">{untrusted.inline(row.model, 60)}</div>' if row.model else ""
    team = f'<div class="small soft">{untrusted.inline(row.team, 40)}</div>'
    return f'<a href="{address}">{untrusted.inline(row.slug, 60)}</a>{team}{model}{_builds(row)}'


def _status(row: FleetRow, now: datetime) -> str:
    """The tier, why and since when, what is overdue or open, and what to do."""
    said = row.said
    if said is None:  # of rows out of sight nobody asks
        return badges.of_tier(row.tier)
    lines = [f'<div class="small">{untrusted.inline(said.reason, 240)}</div>']
    if row.status.since:
        lines.append(f'<div class="small soft">since {times.age(row.status.since, now)}</div>')
    if row.status.overdue_since:
        late = times.age(row.status.overdue_since, now)
        lines.append(f'<div class="small"><span class="warn">overdue</span> since {late}</div>')
    lines += map(_incident, row.incidents)
    if said.next_step and not row.incidents:
        lines.append(
            f'<div class="small"><a href="{escape(said.next_step.address)}">{escape(said.next_step.label)}</a></div>'
        )
    lines += map(_warning, row.status.warning[:MOST_WARNINGS] if row.status.warn else ())
    return f"{badges.of_tier(said.tier)}{''.join(lines)}"


def _warning(now: CheckNow) -> str:
    """What warns, in its own words, and where it says so."""
    named = f"{untrusted.inline(checks.label(now.check), 40)}: {untrusted.inline(now.summary, 160)}"
    said = f'<span class="warn">warning</span> {named}'
    if now.run_id is None:
        return f'<div class="small">{said}</div>'
    address = f"{reverse('run', args=[now.run_id])}#check-{quote(now.check, safe='')}"
    return f'<div class="small">{said} <a href="{escape(address)}">run {now.run_id}</a></div>'


def _incident(mark: IncidentMark) -> str:
    opened = mark.state == "open"
    word = badges.mark(mark.kind, "open incident" if opened else "incident")
    then = "" if opened else f", {escape(mark.state)}"
    address = reverse("incident", args=[mark.number])
    return f'<div class="small"><a href="{address}">{word} {mark.number}</a>{then}</div>'


def _controls(row: FleetRow) -> str:
    if row.controls is None:
        return '<span class="unknown">unknown</span>'
    met, total = row.controls
    address = reverse("deployment-checks", args=[row.slug])
    return f'<a href="{escape(address)}#checklist">{met} of {total}</a>'


def _audits(row: FleetRow, now: datetime) -> str:
    """The last and the next."""
    return (
        f'<div class="small nowrap">last {times.age(row.confirmed, now)}</div>'
        f'<div class="small nowrap">{times.due(row.status.next_due, now, "next ")}</div>'
    )


def _builds(row: FleetRow) -> str:
    return f'<div class="small soft">{"".join(map(_build, row.builds)) or _UNREAD}</div>'


def _build(build: Build) -> str:
    version = (
        untrusted.inline(build.version, 30)
        if build.version
        else '<span class="unknown">version unknown</span>'
    )
    return f'<div class="nowrap">{untrusted.inline(build.engine, 20)} {version}</div>'
