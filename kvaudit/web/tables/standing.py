"""How deployments stand now: open check states against the checks that their plans require.

Evaluated when read, never stamped. A required check without a state, or with an expired one,
counts as missing; so does a deployment without any plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kvaudit.audits.models import CheckState, Plan
from kvaudit.verdict import Verdict, roll_up
from kvaudit.web.items import ITEMS, Item


@dataclass(frozen=True, slots=True)
class Held:
    """What one check says about a deployment as a whole. ``expired`` was evaluated for now."""

    check: str
    verdict: str
    warn: bool
    since: datetime
    last_confirmed: datetime
    expired: bool

    @property
    def effective(self) -> Verdict:
        """An expired fail stands until something newer is known; anything else expired is not known."""
        verdict = Verdict.parse(self.verdict)
        return Verdict.INCONCLUSIVE if self.expired and verdict is not Verdict.FAIL else verdict


@dataclass(frozen=True, slots=True)
class ItemStanding:
    item: Item
    verdict: Verdict
    missing: tuple[str, ...]
    confirmed: datetime | None  # the oldest confirmation among its checks; None while one never ran
    failing: tuple[str, ...]


@dataclass(slots=True)
class Standing:
    """One deployment. ``required`` are the checks of its enabled plans."""

    required: frozenset[str] = frozenset()
    held: dict[str, Held] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        return sorted(
            name for name in self.required if name not in self.held or self.held[name].expired
        )

    @property
    def verdict(self) -> Verdict:
        """Everything that was ever concluded counts, also of checks that no plan asks for any more."""
        return roll_up(
            (each.effective for each in self.held.values()), missing=bool(self.missing or not self.required)
        )

    @property
    def failing(self) -> list[str]:
        return sorted(name for name, each in self.held.items() if each.effective is Verdict.FAIL)

    @property
    def last_confirmed(self) -> datetime | None:
        return max((each.last_confirmed for each in self.held.values()), default=None)

    def items(self) -> list[ItemStanding]:
        return [self._item(item) for item in ITEMS]

    def _item(self, item: Item) -> ItemStanding:
        known = [self.held[name] for name in item.checks if name in self.held]
        missing = tuple(name for name in item.checks if name not in self.held or self.held[name].expired)
        complete = len(known) == len(item.checks)
        return ItemStanding(
            item=item,
            verdict=roll_up((each.effective for each in known), missing=bool(missing)),
            missing=missing,
            confirmed=min((each.last_confirmed for each in known), default=None) if complete else None,
            failing=tuple(each.check for each in known if each.effective is Verdict.FAIL),
        )


@dataclass(frozen=True, slots=True)
class Place:
    """What decides which plans select a deployment."""

    id: int
    team_id: int
    engine: str


def standings(places: Sequence[Place]) -> dict[int, Standing]:
    """How each deployment stands, by id: three queries however many there are."""
    found = {place.id: Standing(required) for place, required in _required(places)}
    states = CheckState.objects.current().filter(node=None, deployment_id__in=list(found))
    for deployment_id, *rest in states.values_list(
        "deployment_id", "check_id", "verdict", "warn", "since", "last_confirmed", "expired"
    ):
        held = Held(*rest)
        found[deployment_id].held[held.check] = held
    return found


def _required(places: Sequence[Place]) -> Iterable[tuple[Place, frozenset[str]]]:
    by_rule: list[tuple[int | None, str, list[str]]] = []
    checks_of: dict[int, list[str]] = {}
    for plan_id, team_id, engine, checks in Plan.objects.enabled().values_list(
        "id", "team_id", "engine", "checks"
    ):
        checks_of[plan_id] = checks
        if team_id is not None or engine:
            by_rule.append((team_id, engine, checks))
    explicit: dict[int, set[str]] = {}
    through = Plan.deployments.through._default_manager
    for plan_id, deployment_id in through.filter(
        plan_id__in=list(checks_of), deployment_id__in=[place.id for place in places]
    ).values_list("plan_id", "deployment_id"):
        explicit.setdefault(deployment_id, set()).update(checks_of[plan_id])
    for place in places:
        names = set(explicit.get(place.id, ()))
        for team_id, engine, checks in by_rule:
            if team_id in (None, place.team_id) and engine in ("", place.engine):
                names.update(checks)
        yield place, frozenset(names)


def counts(verdicts: Collection[Verdict]) -> Mapping[Verdict, int]:
    return {each: sum(1 for verdict in verdicts if verdict is each) for each in Verdict}
