"""Incidents, quarantine, what people write about an incident, and what shows a fix."""

from __future__ import annotations

from kvaudit.server.incidents.models.cursors import Cursor, Handled
from kvaudit.server.incidents.models.incidents import (
    Citation,
    Incident,
    IncidentQuerySet,
    Kind,
    Severity,
    State,
    Transition,
)
from kvaudit.server.incidents.models.narrative import (
    ActionChange,
    ActionItem,
    Cause,
    ImpactLine,
    TimelineEvent,
)
from kvaudit.server.incidents.models.proof import ExternalResult, Fix, Override, Release, Replay
from kvaudit.server.incidents.models.published import LibraryEntry
from kvaudit.server.incidents.models.quarantine import Quarantine

__all__ = (
    "ActionChange",
    "ActionItem",
    "Cause",
    "Citation",
    "Cursor",
    "ExternalResult",
    "Fix",
    "Handled",
    "ImpactLine",
    "Incident",
    "IncidentQuerySet",
    "Kind",
    "LibraryEntry",
    "Override",
    "Quarantine",
    "Release",
    "Replay",
    "Severity",
    "State",
    "TimelineEvent",
    "Transition",
)
