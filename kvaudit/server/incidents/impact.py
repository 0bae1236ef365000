"""Counts an incident's impact from an imported request log. A request inside the danger zone may have been
answered out of foreign pages; whether it was, a log cannot tell, so that responses stay an estimate."""

from __future__ import annotations

from django.db import transaction

from kvaudit.server.accounts.models import User
from kvaudit.server.incidents.models import ImpactLine, Incident
from kvaudit.server.incidents.models.narrative import Certainty, Measure
from kvaudit.server.incidents.postmortem import put_impact
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.inquiries.models import RequestLog

MARK = "request log "


def log_for(incident: Incident) -> RequestLog | None:
    """The newest log of the deployment that was asked about a time in which the incident lay."""
    start = incident.window_from or incident.window_to or incident.opened_at
    end = incident.mitigated_at or incident.last_evidence_at or incident.opened_at
    rows = RequestLog.objects.of(incident.deployment)
    return rows.filter(since__lte=max(start, end), until__gte=min(start, end)).first()


@transaction.atomic
def count_impact(*, incident: Incident, actor: User) -> list[ImpactLine]:
    """Write what the log says of responses and tenants, in the place of what it said before.
    Raises IncidentProblem without a log, PermissionDenied."""
    log = log_for(incident)
    if log is None:
        raise IncidentProblem(
            f"No imported request log of {incident.deployment.slug} covers the time of this incident: import one "
            "on the exposure page, or state the impact as unknown."
        )
    source = f"{MARK}{log.name[:200]}, SHA-256 {log.sha256}"
    least = f" At least: {log.problem_count:,} lines could not be read." if log.problem_count else ""
    if log.unknown:
        least += f" {log.unknown:,} more of such lengths came while nothing was known."
    when = f"between {log.since:%Y-%m-%d %H:%M} and {log.until:%Y-%m-%d %H:%M} UTC"
    tenants = log.tenants.filter(inside__gt=0).count()
    uncounted = log.problem_count or log.tenants_left_out or log.unknown
    said = (
        (
            Measure.RESPONSES,
            Certainty.ESTIMATED,
            f"{log.inside:,} of {log.in_window:,} requests {when} lay in the danger zone; which answers held foreign "
            f"text the log cannot tell.{least}",
        ),
        (
            Measure.TENANTS,
            Certainty.ESTIMATED if uncounted else Certainty.KNOWN,
            f"{tenants:,} {'tenant' if tenants == 1 else 'tenants'} sent requests in the danger zone {when}.{least}",
        ),
    )
    held = ImpactLine.objects.current().filter(incident=incident, source__startswith=MARK)
    earlier = {line.measure: line for line in held}
    return [
        put_impact(
            incident=incident,
            actor=actor,
            measure=measure,
            certainty=certainty,
            statement=statement,
            source=source,
            replaces=earlier.get(measure),
        )
        for measure, certainty, statement in said
    ]
