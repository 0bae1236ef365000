"""Rows of the fleet's table. By hand: a page has fifty, each of some forty parts, and a template takes three
times as long. What people and engines wrote goes through `foreign`, names of ours are escaped, all else is a constant
or a number."""

from __future__ import annotations

from datetime import datetime
from html import escape

from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.web.fleet.page import Build, FleetRow, IncidentMark
from kvaudit.server.web.kit import badges, times, untrusted
from kvaudit.server.web.kit.parts import pool_bar

_PINS = {Verdict.PASS: "pins met", Verdict.FAIL: "below pin or affected"}


def drawn(row: FleetRow, now: datetime) -> SafeString:
    """One row; ages are told from ``now``."""
    return mark_safe(  # noqa: S308 - see above
        f'<tr>\n  <th scope="row">{_name(row)}</th>\n'
        f'  <td data-label="Standing">{_standing(row, now)}</td>\n'
        f'  <td class="wide" data-label="Items 1 to 5"><ul class="marks">{_items(row, now)}</ul></td>\n'
        f'  <td class="wide" data-label="KV pool / context">{pool_bar.drawn(row.bar) if row.bar else _UNREAD}</td>\n'
        f'  <td data-label="Engine">{_builds(row)}</td>\n'
        f'  <td data-label="Last audit">{times.age(row.confirmed, now)}</td>\n'
        f'  <td data-label="Next audit">{times.due(row.status.next_due, now)}</td>\n</tr>\n'
    )


_UNREAD = '<span class="unknown">not read yet</span>'


def _name(row: FleetRow) -> str:
    address = escape(reverse("deployment", args=[row.slug]))
    model = f'<div class="small soft">{untrusted.inline(row.model, 60)}</div>' if row.model else ""
    team = f'<div class="small soft">{untrusted.inline(row.team, 40)}</div>'
    return f'<a href="{address}">{untrusted.inline(row.slug, 60)}</a>{team}{model}'


def _standing(row: FleetRow, now: datetime) -> str:
    """The verdict, what decides it and since when, and what is not known, overdue or open."""
    status = row.status
    why = since = ""
    if failing := row.failing:
        why = ", ".join(failing) + " "
    elif undecided := row.undecided:
        why = f"not decided: {untrusted.few(undecided)} "
    if status.since:
        since = f"since {times.age(status.since, now)}"
    lines = [f'<div class="small soft">{escape(why)}{since}</div>']
    for words, names in (
        ("never ran", status.missing),
        ("expired", status.expired),
        ("failed, nothing shown since", status.unrefuted_checks),
    ):
        if names:
            lines.append(f'<div class="small soft">{words}: {escape(untrusted.few(names))}</div>')
    if status.overdue_since:
        late = times.age(status.overdue_since, now)
        lines.append(f'<div class="small"><span class="warn">overdue</span> since {late}</div>')
    lines += map(_incident, row.incidents)
    warning = ' <span class="warn">warning</span>' if status.warn else ""
    return f"{badges.mark(status.verdict)}{warning}{''.join(lines)}"


def _incident(mark: IncidentMark) -> str:
    opened = mark.state == "open"
    word = badges.mark(mark.kind, "open incident" if opened else "incident")
    then = "" if opened else f", {escape(mark.state)}"
    address = reverse("incident", args=[mark.number])
    return f'<div class="small"><a href="{address}">{word} {mark.number}</a>{then}</div>'


def _items(row: FleetRow, now: datetime) -> str:
    """The five marks, each with the age of its last pass."""
    shown = []
    for item in row.items:
        passed = times.brief(now - item.passed) if item.passed else "never"
        said = f"{item.sentence}; last passed {passed}{' ago' if item.passed else ''}"
        shown.append(badges.numbered(item.verdict, item.item.number, passed, said))
    return "".join(shown)


def _builds(row: FleetRow) -> str:
    shown = "".join(map(_build, row.builds)) or _UNREAD
    if row.version_verdict is None:
        return shown
    word = _PINS.get(row.version_verdict, "pins not decided")
    return f'{shown}<div class="small">{badges.mark(row.version_verdict, word)}</div>'


def _build(build: Build) -> str:
    version = (
        untrusted.inline(build.version, 30)
        if build.version
        else '<span class="unknown">version unknown</span>'
    )
    return f'<div class="nowrap">{untrusted.inline(build.engine, 20)} {version}</div>'
