"""Whether any tenant is at risk right now: the sentence that the first page begins with, and its four tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.server.audits.state.tiers import MEANS, Tier
from kvaudit.server.web.fleet.page import FleetRow

_SAY = {
    Tier.LEAK: "Leak confirmed on {count}",
    Tier.UNSAFE: "{count} {is_} unsafe",
    Tier.NOT_VERIFIED: "Nothing is known to be unsafe, but {count} {is_} not verified",
    Tier.OK: "{count} {is_} OK: every required check passed and none has expired",
}


@dataclass(frozen=True, slots=True)
class Tile:
    """How many deployments are in a tier. It filters the table."""

    tier: Tier
    count: int

    @property
    def means(self) -> str:
        return MEANS[self.tier]


@dataclass(frozen=True, slots=True)
class Headline:
    tier: Tier
    sentence: str
    named: Sequence[FleetRow]  # where a leak is confirmed, or else which are unsafe
    tiles: Sequence[Tile]
    total: int


def headline(rows: Sequence[FleetRow]) -> Headline:
    """The most urgent tier that has deployments, in one sentence with numbers. Unknown is said as unknown."""
    by: dict[Tier, list[FleetRow]] = {tier: [] for tier in Tier}
    for row in rows:
        by[row.tier].append(row)
    worst = next((tier for tier in Tier if by[tier]), Tier.NOT_VERIFIED)
    count = len(by[worst])
    of = f"{count:,} of {len(rows):,} deployment{'' if len(rows) == 1 else 's'}"
    return Headline(
        worst,
        _SAY[worst].format(count=of, is_="is" if count == 1 else "are"),
        sorted(by[worst], key=lambda row: row.slug) if worst in (Tier.LEAK, Tier.UNSAFE) else [],
        [Tile(tier, len(each)) for tier, each in by.items()],
        len(rows),
    )
