"""Says what serves a target's requests together: which build, whose pools, which counters belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

PRODUCTION: Literal["production"] = "production"
Where = Literal["production", "newcomer", "drained"]
"""When a trial was made: beside customers' traffic, or before a replica takes any, or after it was taken out."""


@dataclass(frozen=True, slots=True)
class Role:
    """The nodes that share a role, by their number in the counters, with the tokens of each one's pool (all ranks);
    None = unknown."""

    name: str
    pools: Mapping[int, int | None]

    @property
    def pool(self) -> int | None:
        known = [pool for pool in self.pools.values() if pool is not None]
        return sum(known) if known and len(known) == len(self.pools) else None


def largest_pool(roles: Iterable[Role]) -> int | None:
    """Tokens of the role with the largest pools; None where one is not known."""
    pools = [role.pool for role in roles]
    return None if not pools or None in pools else max(pool for pool in pools if pool is not None)


@dataclass(frozen=True, slots=True)
class Serving:
    """``build``: SHA-256 (hex) over what evidence belongs to, "" = unknown; ``said``: the same for a reader.
    ``last_freed_first``: a single node whose freed pages go out again at once. ``replica``: which process answers, ""
    where several may. ``unsure``: why the counters may be another process's than the one that answers."""

    roles: tuple[Role, ...] = ()
    build: str = ""
    said: str = ""
    last_freed_first: bool = False
    replica: str = ""
    where: Where = "production"
    unsure: str = ""
