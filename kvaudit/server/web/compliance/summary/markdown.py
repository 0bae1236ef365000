"""The weekly summary as Markdown (GitHub flavour), for a mail, a ticket or a chat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from django.utils import timezone

from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.web.compliance.summary.page import Summary
from kvaudit.server.web.kit import untrusted


def markdown(summary: Summary, base: str) -> str:
    """The same as Markdown (GitHub flavour), links included; foreign words cannot format anything."""
    return "\n".join(_markdown(summary, base)) + "\n"


def _markdown(summary: Summary, base: str) -> Iterator[str]:
    week = summary.week
    yield f"# KV-cache isolation, {week.name}"
    yield ""
    yield f"{_moment(week.start)} to {_moment(week.end)}. **{md(summary.sentence)}.**"
    then = summary.then.by_status
    complying = sum(then.get(status, 0) for status in (Status.PASS, Status.ATTESTED, Status.WAIVED))
    yield f"At the beginning of the week it was {complying:,} of {summary.then.total:,}."
    for title, items in (
        ("New or worse", summary.worse),
        ("Covered by a waiver or an attestation", summary.covered),
        ("Got better", summary.better),
    ):
        yield f"\n## {title}\n"
        for change in items:
            link = f"[{md(change.deployment)}]({base}/d/{change.deployment}/items/{change.item}/)"
            was = change.before.value if change.before else "new"
            owner = f" Owner: {md(change.owner)}." if change.owner else ""
            yield f"- {link} item {md(change.item)}: {was} → **{change.after.value}** ({md(change.reason)}).{owner}"
        if not items:
            yield "Nothing."
    if summary.left_out:
        yield f"- and {summary.left_out:,} more"
    yield "\n## Incidents\n"
    for incident in summary.incidents:
        opened = "opened" if incident.opened else "since"
        link = f"[{incident.number}: {md(incident.title)}]({base}/incidents/{incident.number}/)"
        yield (
            f"- {link} on {md(incident.deployment)}, {incident.severity}, {incident.state}, "
            f"{opened} {_moment(incident.opened_at)}"
        )
    if not summary.incidents:
        yield "None opened, moved or open."
    yield "\n## Action items to do\n"
    for action in summary.actions:
        due = f"due {action.due:%Y-%m-%d}" if action.due else "no date"
        number = action.item.incident_id
        link = f"[incident {number}]({base}/incidents/{number}/)"
        overdue = ", **overdue**" if action.late else ""
        yield f"- {md(action.item.title)} ({link}): {md(action.owner) or 'nobody'}, {due}{overdue}"
    if not summary.actions:
        yield "None."
    yield "\n## Said and decided\n"
    for event in summary.decisions:
        yield f"- {_moment(event.at)} {md(event.deployment)}: {event.what}, {md(event.summary)}"
    if not summary.decisions:
        yield "Nothing."
    yield "\n## Changes of capacity and of the audits themselves\n"
    for event in summary.events:
        yield f"- {_moment(event.at)} {md(event.deployment)}: {event.what}. {md(event.summary)}"
    if not summary.events:
        yield "None seen."
    yield "\n## Ends soon\n"
    for ending in summary.endings:
        owner = f", owner {md(ending.owner)}" if ending.owner else ""
        yield f"- {_moment(ending.expires_at)} {ending.what} of item {md(ending.item)}, {md(ending.place)}{owner}"
    for lapse in summary.lapsing:
        what = f"evidence of {md(', '.join(lapse.checks))}, {md(lapse.deployment)}"
        yield f"- {_moment(lapse.expires_at)} {what}: no plan renews it"
    if not summary.endings and not summary.lapsing:
        yield "Nothing within two weeks."
    yield "\n## Overdue\n"
    for late in summary.late:
        owner = f", owner {md(late.owner)}" if late.owner else ", no owner"
        yield f"- {md(late.deployment)}: plan {md(late.plan)} since {_moment(late.since)}{owner}"
    if not summary.late:
        yield "Nothing."
    yield "\n## Who has something to do\n"
    yield "| Owner | Contact | Fail | Error | Inconclusive | Overdue audits | Ending soon | Action items |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in summary.owners:
        counts = [len(each.by_status.get(s, ())) for s in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE)]
        cells = [
            md(each.name) or "nobody",
            md(each.contact),
            *map(str, [*counts, each.overdue, each.ending, each.actions]),
        ]
        yield f"| {' | '.join(cells)} |"


def md(text: str, limit: int = 300) -> str:
    """Foreign text in a line of Markdown: acting characters spelled out, every sign that formats escaped."""
    line = " ".join(untrusted.plain(text, limit).split())
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&@-])", r"\\\1", line)


def _moment(moment: datetime) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M %Z}"
