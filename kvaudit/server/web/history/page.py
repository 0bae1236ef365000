"""The Audit history page: filters out of the URL, made into a question that the reader may ask."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from kvaudit.auditor import checks
from kvaudit.auditor.text.acting import bytes_escaped
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.export import ExportedResult
from kvaudit.server.audits.models import Trigger
from kvaudit.server.audits.state.history_query import Question
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.csv_file import last_line
from kvaudit.server.web.kit.listing import choice, moment, number, text
from kvaudit.server.web.kit.times import parse_moment

TEXTS = ("deployment", "check", "verdict", "engine", "version", "trigger", "actor", "since", "until")
TRIGGERS = [trigger.value for trigger in Trigger]
MOST_ACTORS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    """The page's state, as it stands in the URL. Of what is ``ignored`` a page says so beside the rest; an export is
    not made."""

    deployment: str = text()
    check: str = text()
    verdict: str = choice(Verdict)
    engine: str = text()
    version: str = text()
    trigger: str = choice(Trigger)
    actor: str = text()
    since: str = moment()
    until: str = moment()
    below: int | None = number("before")

    @property
    def problem(self) -> str:
        """All that was ignored, in sentences."""
        return " ".join(self.ignored.values())

    @property
    def name(self) -> str:
        """For file names: short, and different for different filters."""
        said = "|".join(str(getattr(self, name)) for name in TEXTS)
        return hashlib.sha256(said.encode()).hexdigest()[:8] if self.active else "all"


def question(user: User, filters: Filters) -> Question:
    """What the filters ask, narrowed to what the user may see. At most two queries besides their roles."""
    return Question(
        deployments=_deployments(user, filters.deployment),
        check=filters.check,
        verdict=filters.verdict,
        trigger=filters.trigger,
        actors=_actors(filters.actor),
        engine=filters.engine,
        version=filters.version,
        since=parse_moment(filters.since) if filters.since else None,
        until=parse_moment(filters.until, end=True) if filters.until else None,
    )


def _deployments(user: User, words: str) -> tuple[int, ...] | None:
    """None for somebody who sees everything and named nothing. A full name means that deployment alone."""
    from kvaudit.server.accounts.access import access_of

    if not words and access_of(user).everywhere("view"):
        return None
    seen = Deployment.objects.visible_to(user).order_by("pk")
    if words:
        found = list(seen.filter(slug__icontains=words).values_list("pk", "slug"))
        exact = [pk for pk, slug in found if slug == words]
        return tuple(exact or [pk for pk, _ in found])
    return tuple(seen.values_list("pk", flat=True))


def _actors(name: str) -> tuple[int, ...] | None:
    if not name:
        return None
    found = User.objects.filter(username__icontains=name).order_by("pk").values_list("pk", flat=True)
    return tuple(found[:MOST_ACTORS])


def choices() -> dict[str, Any]:
    """What the selects offer."""
    return {
        "checks": sorted(checks.MODULES),
        "verdicts": [verdict.value for verdict in Verdict],
        "triggers": TRIGGERS,
    }


HEAD = (
    "result", "observed (UTC)", "deployment", "team", "check", "verdict", "warning", "severity", "summary", "run",
    "attempt", "kind", "trigger", "actor", "plan", "engines and versions", "fingerprint", "what to do",
    "does not prove",
)  # fmt: skip


def csv_rows(lines: Iterator[ExportedResult]) -> Iterator[tuple[object, ...]]:
    """Everything but measures and evidence, which are in the JSON export."""
    yield HEAD
    for line in lines:
        yield (line.id, _utc(line.observed_at), *line[2:6], "yes" if line.warn else "no", *line[7:19])


def json_parts(lines: Iterator[ExportedResult], asked: Mapping[str, Any]) -> Iterator[bytes]:
    """One JSON document, in parts. Broken off, it is no valid document, so that no program takes a part for the
    whole; its last line tells people."""
    head = {"schema": "kvaudit.history/1", "made_at": _utc(clock.now()), "filters": asked}
    yield orjson.dumps(head)[:-1] + b',"results":['
    lead = b"\n"
    count = 0
    try:
        for line in lines:
            row = line._asdict() | {
                "observed_at": _utc(line.observed_at),
                "measures": orjson.Fragment(line.measures),
                "evidence": orjson.Fragment(line.evidence),
            }
            yield lead + bytes_escaped(orjson.dumps(row))
            lead = b",\n"
            count += 1
    except Exception as fault:
        yield b"\n%s\n" % last_line(fault).encode()
        raise
    yield b'\n],"count":%d}\n' % count


def _utc(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
