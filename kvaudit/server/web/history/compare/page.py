"""Two runs side by side: verdict of each check, every measure, and what moved in the fingerprint between them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.server.audits.execution.run_verdict import counting
from kvaudit.server.audits.models import Result, Run
from kvaudit.server.fleet.models import NodeSnapshot
from kvaudit.server.web.kit.parts import checks
from kvaudit.server.web.kit.parts.measure_names import written
from kvaudit.server.web.kit.parts.measures import absent, label

MOST_LINES = 400
LONGEST_LIST = 12
"""Items up to which a list is compared as a whole; longer ones are said by their length."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same thing in both runs; ``absent`` values are None."""

    name: str
    before: Any
    after: Any

    @property
    def differs(self) -> bool:
        return bool(self.before != self.after)


@dataclass(frozen=True, slots=True)
class CheckPair:
    check: str
    title: str
    before: Result | None
    after: Result | None
    measures: Sequence[Pair]

    @property
    def common(self) -> bool:
        """Whether both runs came to a result of it."""
        return self.before is not None and self.after is not None

    @property
    def differs(self) -> bool:
        """Whether it came to another verdict; a check that one run never had came to none."""
        return (
            self.before is not None and self.after is not None and self.before.verdict != self.after.verdict
        )

    @property
    def differing(self) -> list[Pair]:
        return [pair for pair in self.measures if pair.differs]

    @property
    def same(self) -> int:
        return len(self.measures) - len(self.differing)


@dataclass(frozen=True, slots=True)
class NodePair:
    """A node's fingerprint at the time of each run: fields that differ, and how many do not."""

    node: str
    fields: Sequence[Pair]
    same: int
    known: tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Comparison:
    before: Run
    after: Run
    checks: Sequence[CheckPair]
    nodes: Sequence[NodePair]

    @property
    def runs(self) -> tuple[Run, Run]:
        return self.before, self.after

    @property
    def same_fingerprint(self) -> bool | None:
        """None while one of them has none: unknown is not equal."""
        if not self.before.fingerprint or not self.after.fingerprint:
            return None
        return self.before.fingerprint == self.after.fingerprint

    @property
    def common(self) -> list[CheckPair]:
        return [pair for pair in self.checks if pair.common]

    @property
    def alone(self) -> list[CheckPair]:
        """Checks that one of the runs has no result of: nothing of them can be compared."""
        return [pair for pair in self.checks if not pair.common]

    @property
    def only_before(self) -> list[str]:
        return [pair.check for pair in self.alone if pair.before]

    @property
    def only_after(self) -> list[str]:
        return [pair.check for pair in self.alone if pair.after]

    @property
    def changed(self) -> list[CheckPair]:
        return [pair for pair in self.checks if pair.differs]


def compare(before: Run, after: Run) -> Comparison:
    """Both from ``with_results()``. Two queries for the readings."""
    old, new = _counted(before), _counted(after)
    pairs = []
    for name in checks.in_order(list({**old, **new})):
        left, right = old.get(name), new.get(name)
        pairs.append(CheckPair(name, checks.title(name), left, right, _measures(left, right)))
    return Comparison(before, after, pairs, _nodes(before, after))


def _counted(run: Run) -> dict[str, Result]:
    results: list[Result] = sorted(run.results.all(), key=lambda result: result.pk)
    found = counting(results)
    return {name: each for name, each in found.items() if isinstance(each, Result)}


def _measures(before: Result | None, after: Result | None) -> list[Pair]:
    old = dict(flat(before.measures if before else {}))
    new = dict(flat(after.measures if after else {}))
    names = sorted({*old, *new})
    return [Pair(name, old.get(name), new.get(name)) for name in names[:MOST_LINES]]


def flat(measures: Any, lead: str = "") -> list[tuple[str, str]]:
    """Paths and values of nested measures, as text that can be compared and read."""
    if isinstance(measures, Mapping):
        found = []
        for key, value in measures.items():
            path = f"{lead} › {_named(key, lead)}" if lead else _named(key, lead)
            said = absent(str(key)) if value is None else written(str(key), value)
            found += flat(value, path) if said is None else [(path, said)]
        return found
    if isinstance(measures, list) and any(isinstance(measure, (Mapping, list)) for measure in measures):
        if len(measures) > LONGEST_LIST:
            return [(lead, f"{len(measures):,} entries")]
        found = []
        for number, measure in enumerate(measures, start=1):
            name = _identity(measure) or str(number)
            found += flat(measure, f"{lead} › {name}")
        return found
    return [(lead or "value", _said(measures))]


def _named(key: object, lead: str) -> str:
    return label(str(key)) if not lead else str(key).replace("_", " ")


def _identity(entry: Any) -> str:
    if isinstance(entry, Mapping):
        for name in ("node", "name", "id"):
            if isinstance(entry.get(name), str) and entry[name]:
                return str(entry[name])
    return ""


def _said(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _nodes(before: Run, after: Run) -> list[NodePair]:
    old, new = fingerprints(before), fingerprints(after)
    found = []
    for name in sorted({*old, *new}):
        left, right = _fields(old.get(name)), _fields(new.get(name))
        pairs = [Pair(field, left.get(field), right.get(field)) for field in sorted({*left, *right})]
        moved = [pair for pair in pairs if pair.differs]
        found.append(NodePair(name, moved, len(pairs) - len(moved), (name in old, name in new)))
    return found


def _fields(stored: Mapping[str, Any] | None) -> dict[str, str]:
    return dict(flat(stored or {}))


def fingerprints(run: Run) -> dict[str, Mapping[str, Any]]:
    """Node -> its fingerprint when the run ended: the last reading by then. One query."""
    moment = moment_of(run)
    rows = (
        NodeSnapshot.objects.filter(node__deployment_id=run.deployment_id, first_seen__lte=moment)
        .order_by("node_id", "-first_seen", "-pk")
        .distinct("node_id")
        .values_list("node__name", "node__valid_to", "fingerprint")
    )
    return {
        name: stored
        for name, valid_to, stored in rows
        if (valid_to is None or valid_to > moment) and isinstance(stored, dict)
    }


def moment_of(run: Run) -> datetime:
    return run.finished_at or run.started_at or run.created_at
