"""Follows up answers of the rounds that miss what their prompt asked for, each way and tail by itself: how often a
model finds a nonce in a completion says nothing of a phrase in a chat. `kvaudit.auditor.checks.misses` judges it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kvaudit.auditor.checks.asker import REPEATS
from kvaudit.auditor.checks.canary.seen import Asked, CanarySeen
from kvaudit.auditor.checks.misses import Compared, Miss, Misses, MissKind
from kvaudit.auditor.checks.trials import Trial

MOST_FOLLOWED = 6
"""Misses of one way and tail, after which a model that also misses one short prompt of ten is not asked again for each:
their number is compared all the same."""

OFTEN = 0.1

FIRST_CONTROLS = 3
"""Short prompts where a miss is the first answer of its way and tail: a few requests, and one that is read is enough
for the rules of misses to hold."""

Fresh = Callable[[], Awaitable[Trial]]
Replay = Callable[[], Awaitable[bool | None]]


@dataclass(frozen=True, slots=True)
class Ways:
    """How the missed request is asked again: a fresh prompt of its length, a short one, the identical one."""

    fresh: Fresh
    short: Fresh
    replay: Replay


def misses_of(seen: CanarySeen, asked: Asked) -> Misses:
    return seen.misses.setdefault((asked.mode, asked.tail), Misses(control_asked=True))


def note(seen: CanarySeen, asked: Asked, *, control: bool) -> None:
    """Count an answer: a short one is what the others are compared with."""
    misses = misses_of(seen, asked)
    if not control:
        misses.note(asked.trial)
    elif asked.trial.nonce is not None:
        misses.controls.append(asked.trial)


async def follow_up(misses: Misses, missed: Trial, ways: Ways, *, above: bool) -> None:
    """Ask the identical prompt and a fresh one; ten at this length beside ten short ones where both miss, but not
    ``above`` the limit, where no answer is forgiven anyhow. Short ones first where none was asked this way yet, since a
    miss says nothing without them."""
    for _ in range(0 if misses.controls else FIRST_CONTROLS):
        await ways.short()
    known = len(misses.found) >= MOST_FOLLOWED and misses.control_rate > OFTEN
    if misses.differs or misses.control_lost or known:
        misses.add(Miss(missed, above=above))
        return
    replay = await ways.replay()
    fresh = await ways.fresh()
    miss = Miss(missed, replay, fresh.nonce, above=above)
    misses.add(miss)
    if miss.kind is MissKind.PERSISTENT and not above and missed.name not in misses.compared:
        compared = misses.compared[missed.name] = Compared(missed.tokens)
        for _ in range(REPEATS):
            compared.at.append(await ways.fresh())
            compared.short.append(await ways.short())
