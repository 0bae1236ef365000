"""Runs checks against a target under a budget and yields what happens as it happens.

One reading per node and run: every passive check sees the same `NodeSeen`s. Cancellation and the
deadline are looked at before every step. An exception inside a check becomes that check's *error*.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kvaudit.auditor import checks as registry
from kvaudit.auditor.checks.contract import Audit, History, NodeSeen
from kvaudit.auditor.checks.node_coverage import naming_unread
from kvaudit.auditor.runner.reading import Anonymously, broke, log_defect, read_node
from kvaudit.auditor.targets import Node, Target
from kvaudit.auditor.transport import KeyForElsewhere
from kvaudit.auditor.verdict import Result, Verdict

if TYPE_CHECKING:  # imported when an active check is asked for: the gate starts without
    from kvaudit.auditor.prober import Permission
    from kvaudit.auditor.prober.probe_set import ProbeSet

GRACE = 5.0
"""Seconds past the deadline in which an active check may end by itself and keep what it has seen."""

CANCELLED = "The run was cancelled before this was done."
"""The summary of a check that did not finish because somebody cancelled its run."""

GLANCE = 0.25
"""Seconds between two looks at ``cancelled`` while waiting for nodes."""

SHARE = 0.8
"""Of the time that is left, what reading may take: a node's own sentence beats the run's deadline."""


SHORT_PAUSES = 15.0
"""Seconds, in all, where somebody waits for the run."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Ceilings of one run."""

    seconds: float = 60.0  # total deadline
    prompt_tokens: int | None = None  # of each active check; None = max(20 million, 80 x context)
    node_seconds: float = 10.0  # deadline for reading one node
    concurrency: int = 64  # nodes read at once
    connections: int = 2  # fresh connections over which a node is read: several processes may answer in turn
    waited_for: bool = False  # somebody sits before it, and ``seconds`` is only a ceiling: pauses are short

    @property
    def idle(self) -> float:
        """Seconds of a run, at most, in which the target is left alone: a tenth of its time."""
        return min(0.1 * self.seconds, SHORT_PAUSES if self.waited_for else self.seconds)


@dataclass(frozen=True, slots=True)
class NodeRead:
    """Event: one node has been read (or could not be)."""

    node: NodeSeen


@dataclass(frozen=True, slots=True)
class CheckStarted:
    """Event: this check is being observed now."""

    check: str


@dataclass(frozen=True, slots=True)
class CheckFinished:
    """Event: this check has its result."""

    result: Result


Event = NodeRead | CheckStarted | CheckFinished


async def run(
    target: Target,
    checks: Sequence[str],
    *,
    budget: Budget = Budget(),
    history: History | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    permission: Permission | None = None,
) -> AsyncGenerator[Event, None]:
    """Read every node concurrently, then run ``checks`` in order; yields events.

    A cancelled or timed-out run yields an *error* result for every check that did not finish, so
    the number of results always equals ``len(checks)``. ``permission`` is what active checks may do.
    Leaving the iterator early (``aclose``)
    stops the reading and closes every connection.
    """
    until = asyncio.get_running_loop().time() + budget.seconds
    brake = _Brake(until, budget, cancelled)
    async with AsyncExitStack() as open_clients:
        seen: dict[str, NodeSeen] = {}
        async with aclosing(_read_nodes(target.nodes, budget, brake)) as reads:
            async for found in reads:
                seen[found.name] = found
                yield NodeRead(found)
        for node in target.nodes:
            if node.name not in seen:
                unread = NodeSeen(node.name, node.url, node.role, problem=brake.reason or "It was not read.")
                seen[node.name] = unread
                yield NodeRead(unread)
        audit = Audit(
            deployment=target.slug,
            nodes=[seen[node.name] for node in target.nodes],
            rules=target.rules,
            history=history,
            complete=target.complete,
            expected_roles=frozenset(node.role for node in target.nodes if node.role),
            ask_anonymously=Anonymously(
                target.nodes,
                open_clients,
                brake.left,
                seconds=budget.node_seconds,
                concurrency=budget.concurrency,
            ).ask,
            replayed=permission.replayed if permission is not None else (),
        )
        # What was read is judged even when reading took all of the time: one node that hangs must not hide the others.
        spent_reading = brake.pressed() and not brake.cancelled
        judged_late = spent_reading and any(each.problem != brake.reason for each in seen.values())
        probes = await _probe_set(target, checks, budget, permission, brake, open_clients)
        for check in checks:
            if brake.pressed() and (brake.cancelled or check in registry.ACTIVE or not judged_late):
                again = "Run it again." if brake.cancelled else NO_TIME
                yield CheckFinished(_not_run(check, brake.reason, again))
                continue
            if check in registry.ACTIVE and target.why_no_tenants:
                yield CheckFinished(_not_asked(check, target.why_no_tenants))
                continue
            yield CheckStarted(check)
            result = await _check(check, audit, brake, probes)
            yield CheckFinished(probes.with_traces(result) if probes is not None else result)


async def results(
    target: Target,
    checks: Sequence[str],
    *,
    budget: Budget = Budget(),
    history: History | None = None,
    permission: Permission | None = None,
) -> tuple[list[NodeSeen], list[Result]]:
    """A whole run at once: the nodes in the target's order, and one result per check."""
    nodes: dict[str, NodeSeen] = {}
    found: list[Result] = []
    async for event in run(target, checks, budget=budget, history=history, permission=permission):
        if isinstance(event, NodeRead):
            nodes[event.node.name] = event.node
        elif isinstance(event, CheckFinished):
            found.append(event.result)
    return [nodes[node.name] for node in target.nodes], found


class _Brake:
    """The deadline and the caller's wish to stop, with the sentence that says which it was."""

    def __init__(self, until: float, budget: Budget, cancelled: Callable[[], bool]) -> None:
        self.until = until
        self.reason = ""
        self._seconds = budget.seconds
        self._cancelled = cancelled

    def pressed(self) -> bool:
        if not self.reason:
            if self._cancelled():
                self.reason = CANCELLED
            elif self.left() <= 0:
                self.reason = f"The run's deadline of {self._seconds:g} s passed before this was done."
        return bool(self.reason)

    @property
    def cancelled(self) -> bool:
        return self._cancelled()

    def left(self) -> float:
        return self.until - asyncio.get_running_loop().time()


async def _read_nodes(nodes: Sequence[Node], budget: Budget, brake: _Brake) -> AsyncGenerator[NodeSeen, None]:
    """Every node as soon as it is read; at the brake, the rest is abandoned."""
    slots = asyncio.Semaphore(budget.concurrency)

    async def one(node: Node) -> NodeSeen:
        async with slots:
            seconds = min(budget.node_seconds, max(brake.left() * SHARE, 0.0))
            return await read_node(node, seconds, budget.connections)

    waiting = {asyncio.create_task(one(node)) for node in nodes}
    try:
        while waiting and not brake.pressed():
            glance = max(0.0, min(GLANCE, brake.left()))
            done, waiting = await asyncio.wait(waiting, timeout=glance, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _probe_set(
    target: Target,
    checks: Sequence[str],
    budget: Budget,
    permission: Permission | None,
    brake: _Brake,
    open_clients: AsyncExitStack,
) -> ProbeSet | None:
    """The active part of this run; None when no active check is asked for."""
    if not any(check in registry.ACTIVE for check in checks):
        return None
    from kvaudit.auditor.prober import Permission
    from kvaudit.auditor.prober.probe_set import ProbeSet

    given = permission or Permission()

    def stopped() -> str:
        return given.stopped() or (brake.reason if brake.pressed() else "")

    async def reread() -> list[NodeSeen]:
        return list(await asyncio.gather(*(read_node(node, budget.node_seconds) for node in target.nodes)))

    if budget.prompt_tokens is not None:
        given = replace(given, prompt_tokens=budget.prompt_tokens)
    allowed = replace(given, stopped=stopped, idle=budget.idle, seconds_left=brake.left)
    return await open_clients.enter_async_context(ProbeSet(target, allowed, reread))


async def _check(check_id: str, audit: Audit, brake: _Brake, probes: ProbeSet | None) -> Result:
    try:
        check = registry.get(check_id)
        known = registry.CHECKS.get(check_id)
        missing = [name for name in (known.packages if known else ()) if find_spec(name) is None]
        if missing:  # before anything is sent: prompts that nobody can judge only cost tokens
            return _not_installed(check_id, missing)
        if check_id in registry.ACTIVE and probes is not None:
            async with asyncio.timeout(max(brake.left(), 0.0) + GRACE):
                return await probes.check(check_id, audit)
        async with asyncio.timeout(max(brake.left(), 0.0) + GRACE):
            seen = await check.observe(audit)
        result = naming_unread(check.judge(seen, audit), audit)
    except TimeoutError:
        if not brake.pressed():
            brake.reason = f"A wait inside the check {check_id} timed out."
            return _not_run(check_id, brake.reason)
        return _not_run(check_id, brake.reason, "Run it again." if brake.cancelled else NO_TIME)
    except KeyForElsewhere as error:
        return _not_asked(check_id, str(error))
    except Exception as error:  # noqa: BLE001
        # A defect of ours says nothing about the target: error, never pass, and the other checks go on.
        log_defect(f"check {check_id} failed")
        return _not_run(check_id, broke(f"The check {check_id}", error))
    return result


def _not_asked(check: str, reason: str) -> Result:
    """Our configuration's fault: an error, since what it would have shown is not an open question."""
    return Result(
        check,
        Verdict.ERROR,
        reason,
        next="Set the tenants' keys again, then run it again.",
        does_not_prove="Nothing was asked of the target.",
    )


NO_TIME = "Give it more time (kvaudit probe --timeout, a longer window, budget_seconds), then run it again."


def _not_run(
    check: str,
    reason: str,
    next_step: str = "Run it again; if this repeats, look at the log of kvaudit and report it.",
) -> Result:
    return Result(
        check,
        Verdict.ERROR,
        reason,
        next=next_step,
        does_not_prove="Nothing was learnt about the target.",
    )


def _not_installed(check: str, missing: Sequence[str]) -> Result:
    return Result(
        check,
        Verdict.ERROR,
        f"{check} was not asked: it judges with {' and '.join(missing)}, which "
        f"{'is' if len(missing) == 1 else 'are'} not installed here.",
        next="Install kvaudit[stats], or leave this check out.",
        does_not_prove="Nothing was learnt about the target.",
    )
