"""How much of what a trial may have read was ours: the dirtying c of each trial. Pure.

Whose text a stale page holds depends on the order in which freed pages go out again, and nobody outside sees that
order. So c is the smallest own share over every stretch of served tokens from which the pages may come: those freed
last (a stack), and those freed half a pool to a pool and a half ago (queues, sorted lists, caches). Averaged over
rounds with drawn gaps that is at most the share of own pages that were really read (decision 22).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvaudit.auditor.checks.serving import Role, largest_pool

LAST = (0.5, 1.0, 1.5)
AGO = ((0.5, 1.25), (0.8, 1.1))
"""In pools. The narrow stretch is where a queue hands its pages out again: after a burst of others' the wide ones alone
claim up to 7 % too much (simulated, decision 22)."""

SEEN = 0.9
"""Of our own tokens the counters must show at least this much, or they are not those of what answers."""

Moved = Mapping[int, float]
"""Node number -> tokens that it served since the run began."""


@dataclass(slots=True)
class Record:
    """Tokens served since the run began, at each reading of the counters: all, and our own frames.
    ``last_freed_first``: only what was served since planting can be read, as behind a single node whose free list is a
    stack."""

    roles: Sequence[Role] = ()
    last_freed_first: bool = False
    _moved: list[Moved] = field(default_factory=list)
    _total: list[float] = field(default_factory=list)
    _others: list[float] = field(default_factory=list)  # never falls: a counter that lags catches up
    _own: float = 0.0

    def note(self, moved: Moved, own: float) -> int:
        """A reading, with all own tokens so far. Returns its number."""
        total = max((_sum(role, moved) for role in self.roles), default=0.0)
        self._moved.append(moved)
        self._total.append(max(total, self._total[-1] if self._total else 0.0))
        self._others.append(max(total - own, self._others[-1] if self._others else 0.0, 0.0))
        self._own = own
        return len(self._total) - 1

    @property
    def pool(self) -> int | None:
        """Tokens of the role with the largest pools; None where one is not known."""
        return largest_pool(self.roles)

    @property
    def blind(self) -> bool:
        """Whether the counters show less than what we sent: they are another process's, or stand still."""
        return not self._total or self._total[-1] < SEEN * self._own or not self._total[-1]

    def missing(self, at: int | None = None) -> float:
        """Tokens that are still to be served before every replica has served one pool since the run began; of a role
        that does not count what it took over from another one, the other one's tokens stand for its own."""
        if self.last_freed_first or not self._total:
            return 0.0
        at = len(self._total) - 1 if at is None else at
        left = 0.0
        for role in self.roles:
            moved = self._moved[at]
            stands_in = len(role.pools) == 1
            left = max(
                left,
                sum(
                    max(0.0, (pool or 0) - (self._total[at] if stands_in else moved.get(node, 0.0)))
                    for node, pool in role.pools.items()
                ),
            )
        return left

    def share(self, plant: int, read: int, answered: int) -> float:
        """c of a trial: counters read before its victim was sent, before it was sent itself, and after its answer."""
        if self.blind or not self._total[read]:
            return 0.0
        since = self._since(plant, read, answered)
        if self.last_freed_first:
            return since
        if self.pool is None or self.missing(read) > 0:
            return 0.0
        end = self._total[read]
        shares = [since]
        for pool in {role.pool for role in self.roles if role.pool}:
            shares += [self._between(end - size * pool, end) for size in LAST]
            shares += [self._between(end - far * pool, end - near * pool) for near, far in AGO]
        return min(shares)

    def _since(self, plant: int, read: int, answered: int) -> float:
        """Others' tokens until the answer was complete: the request may have waited for some of them."""
        others = self._others[answered] - self._others[plant]
        own = (self._total[read] - self._others[read]) - (self._total[plant] - self._others[plant])
        return max(0.0, own) / (max(0.0, own) + others) if own > 0 else 0.0

    def _between(self, start: float, end: float) -> float:
        """Own share of the tokens served from position ``start`` to ``end``; what was served before the run began is
        others'."""
        if end <= start:
            return 0.0
        return max(0.0, self._own_at(end) - self._own_at(max(start, 0.0))) / (end - start) if end > 0 else 0.0

    def _own_at(self, position: float) -> float:
        after = bisect_right(self._total, position)
        if after == len(self._total):
            return self._total[-1] - self._others[-1]
        at, rest = self._total[after], self._others[after]
        before, rest_before = (self._total[after - 1], self._others[after - 1]) if after else (0.0, 0.0)
        part = (position - before) / (at - before) if at > before else 0.0
        return position - (rest_before + part * (rest - rest_before))


def _sum(role: Role, moved: Moved) -> float:
    return sum(moved.get(node, 0.0) for node in role.pools)
