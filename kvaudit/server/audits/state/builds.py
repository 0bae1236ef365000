"""Tells which engine and version a deployment ran at a moment, by its nodes' snapshots.

A node runs a build from the snapshot that first showed it until the next one that shows another, or until
the node's description ends. A deployment runs what any of its nodes runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

_CHANGES = """
SELECT deployment_id, node_id, first_seen, valid_to, engine, version FROM (
  SELECT n.deployment_id, s.node_id, s.first_seen, n.valid_to, s.engine, s.version, s.id,
         lag(s.engine) OVER node AS engine_before, lag(s.version) OVER node AS version_before
  FROM fleet_nodesnapshot s JOIN fleet_node n ON n.id = s.node_id
  WHERE %(all)s OR n.deployment_id = ANY(%(ids)s::bigint[])
  WINDOW node AS (PARTITION BY s.node_id ORDER BY s.first_seen, s.id)
) AS seen
WHERE engine IS DISTINCT FROM engine_before OR version IS DISTINCT FROM version_before
ORDER BY node_id, first_seen, id
"""

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """That a node of the deployment ran this build from ``start`` (inclusive) to ``end`` (exclusive)."""

    deployment_id: int
    start: datetime
    end: datetime
    engine: str
    version: str


@dataclass(frozen=True)
class Builds:
    """All builds of some deployments. Memory grows with changes of builds, not with results."""

    spans: Sequence[Span]
    _said: dict[int, tuple[list[datetime], list[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, deployment_ids: Iterable[int] | None, using: BaseDatabaseWrapper | None = None) -> Builds:
        """One query; None means every deployment. ``using``: another connection's snapshot."""
        ids = None if deployment_ids is None else sorted(set(deployment_ids))
        with (using or connection).cursor() as cursor:
            cursor.execute(_CHANGES, {"all": ids is None, "ids": ids or []})
            rows = cursor.fetchall()
        spans = []
        for number, (deployment, node, start, valid_to, engine, version) in enumerate(rows):
            following = rows[number + 1] if number + 1 < len(rows) else None
            end = following[2] if following is not None and following[1] == node else valid_to or FOREVER
            if end > start:
                spans.append(Span(deployment, start, end, engine, version))
        return cls(spans)

    def at(self, deployment_id: int, moment: datetime) -> str:
        """``sglang 0.5.22``, several after one another, "" where no node had been read by then."""
        if not self._said:
            self._said.update(_swept(self.spans))
        starts, names = self._said.get(deployment_id, ([], []))
        place = bisect_right(starts, moment)
        return names[place - 1] if place else ""

    def running(self, engine: str, version: str) -> list[tuple[int, datetime, datetime]]:
        """(deployment, from, to) where any node ran the engine (exactly) and the version (its beginning); "" matches
        any. Disjoint per deployment: a database compares each result with all of these."""
        found: list[tuple[int, datetime, datetime]] = []
        matching = (
            (span.deployment_id, span.start, span.end)
            for span in self.spans
            if (not engine or span.engine == engine) and span.version.startswith(version)
        )
        for deployment, start, end in sorted(matching):
            if found and found[-1][0] == deployment and start <= found[-1][2]:
                found[-1] = (deployment, found[-1][1], max(end, found[-1][2]))
            else:
                found.append((deployment, start, end))
        return found


def _swept(spans: Sequence[Span]) -> Mapping[int, tuple[list[datetime], list[str]]]:
    """Deployment -> moments at which what it runs changes, and what it runs from each on."""
    edges: dict[int, list[tuple[datetime, int, str]]] = defaultdict(list)
    for span in spans:
        name = f"{span.engine} {span.version}".strip()
        edges[span.deployment_id].append((span.start, 1, name))
        edges[span.deployment_id].append((span.end, -1, name))
    found: dict[int, tuple[list[datetime], list[str]]] = {}
    for deployment, moments in edges.items():
        running: dict[str, int] = defaultdict(int)
        starts: list[datetime] = []
        names: list[str] = []
        for moment, step, name in sorted(moments):
            running[name] += step
            said = ", ".join(sorted(build for build, count in running.items() if count > 0))
            if starts and starts[-1] == moment:
                names[-1] = said
            else:
                starts.append(moment)
                names.append(said)
        found[deployment] = (starts, names)
    return found
