"""Saves changes of state, and puts a message into the outbox for those that people should hear of, in the same
transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.models import Team
from kvaudit.server.audits.models import StateChange
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.notify.models import Event
from kvaudit.server.notify.services import enqueue

MOST_SINGLE = 10
"""Deployments of one team told one by one; a rack that goes dark is one message, not hundreds."""

_EVENTS = {Verdict.FAIL.value: Event.FAIL, Verdict.ERROR.value: Event.ERROR}


def save_and_notify(changes: Iterable[StateChange]) -> list[StateChange]:
    """Save the changes; a fail, an error and an overdue run also go to the outbox, once per change
    of state: a check that goes on failing is not told again."""
    rows = StateChange.objects.bulk_create(changes)
    loud: dict[tuple[int, Event], list[StateChange]] = defaultdict(list)
    for row in rows:
        if (event := _event(row)) is not None:
            loud[row.deployment_id, event].append(row)
    if loud:
        _announce(loud)
    return rows


def _event(change: StateChange) -> Event | None:
    if change.what == StateChange.What.OVERDUE:
        return Event.OVERDUE
    if change.what == StateChange.What.VERDICT and change.before != change.after:
        return _EVENTS.get(change.after)
    return None


def _announce(loud: dict[tuple[int, Event], list[StateChange]]) -> None:
    deployments = Deployment.objects.select_related("team").in_bulk({pk for pk, _ in loud})
    by_team: dict[tuple[int, Event], list[tuple[Deployment, list[StateChange]]]] = defaultdict(list)
    for (pk, event), rows in sorted(loud.items()):
        by_team[deployments[pk].team_id, event].append((deployments[pk], rows))
    for (_, event), told in by_team.items():
        team = told[0][0].team
        if len(told) > MOST_SINGLE:
            _send(event, team, f"{len(told)} deployments: {event.label.lower()}", told)
        else:
            for each in told:
                _send(event, team, f"{each[0].slug}: {_sentence(each[1])}", [each])


def _sentence(rows: Sequence[StateChange]) -> str:
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    named = f"{rows[0].check_id}: " if rows[0].check_id else ""
    return f"{named}{rows[0].summary}{more}"


def _send(
    event: Event, team: Team, subject: str, told: Sequence[tuple[Deployment, list[StateChange]]]
) -> None:
    payload: dict[str, Any] = {
        "event": event.value,
        "team": team.slug,
        "summary": subject,
        "deployments": [
            {
                "deployment": deployment.slug,
                "url": f"{settings.BASE_URL}/d/{deployment.slug}/",
                "changes": [
                    {
                        "at": row.at.isoformat(),
                        "check": row.check_id,
                        "before": row.before,
                        "verdict": row.after,
                        "severity": row.detail.get("severity", ""),
                        "summary": row.summary,
                        "run": f"{settings.BASE_URL}/runs/{row.run_id}/" if row.run_id else None,
                    }
                    for row in rows
                ],
            }
            for deployment, rows in told
        ],
    }
    if len(told) == 1:
        payload["deployment"] = told[0][0].slug
    enqueue(event=event.value, subject=subject, payload=payload, team=team)
