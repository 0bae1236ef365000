"""Plays two accounts against a session API: seed, release, claim, read, come back late, cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvaudit.auditor.checks.session.api import MARKER, Answer, SessionWire, Step, UnusablePlan, draw_token
from kvaudit.auditor.checks.session.seen import ForeignData, SessionSeen, allowance
from kvaudit.auditor.engines.answers import Answer as Read
from kvaudit.auditor.engines.generic.adapter import with_pointers
from kvaudit.auditor.readings import EngineFacts

FILL = 0.8
"""Share of the pool that A takes, so that B must get slots that A had."""

UNKNOWN_FILL = 16
MOST_SEEDS = 200
LEAST_ROUNDS = 4
MOST_ROUNDS = 60
ECHOES = 20
CUT_EVERY = 5
LATE_CLAIMS = 4
"""Claims after a slow save until one gets the slot that it was meant for."""

SAVE_HEAD_START = 0.02
"""Seconds by which a slow save is under way before its session is released."""

A, B = 0, 1


@dataclass(slots=True)
class HeldSession:
    """A session that an account has or had: captured values, and the markers written into it."""

    account: int
    values: dict[str, str]
    markers: list[str] = field(default_factory=list)
    release: str = ""


class SessionSender:
    """The rounds of one run; ``seen`` grows as answers come. A find ends it."""

    def __init__(self, wire: SessionWire, seen: SessionSeen) -> None:
        self.wire, self.seen = wire, seen
        self._owners: dict[str, HeldSession] = {}
        self._kinds: dict[str, str] = {}
        self._slots: set[str] = set()  # slots that A has released
        self._admitted: set[int] = set()  # accounts whose key was taken at least once
        self.shared = False
        self.round = 0

    # -- one request -----------------------------------------------------------------------------

    async def send(
        self, account: int, step: Step, held: HeldSession | None, *, size: int = 1, cut: float | None = None
    ) -> Answer:
        """Send a step for a session; markers that it writes belong to ``held``."""

        def fill(name: str) -> str:
            if name == "marker":
                token = draw_token(self.wire.draw)
                if held is not None:
                    held.markers.append(token)
                    self._owners[token] = held
                return token
            if name == "size":
                return str(size)
            if held is None or name not in held.values:
                raise UnusablePlan(
                    f"{step.method} {step.path} needs {{{{{name}}}}}, and no earlier answer held it: check the pointer "
                    "that captures it."
                )
            return held.values[name]

        self.seen.requests += 1
        answer = await self.wire.call(account, step, fill, shared=self.shared, cut=cut)
        self.seen.evidence.extend(answer.evidence)
        self.seen.void += answer.void
        if answer.taken:
            self._admitted.add(account)
        elif answer.status in (401, 403) and account not in self._admitted and not self.seen.denied:
            self.seen.denied = f"{self.wire.accounts[account]} ({answer.status})"
        if held is not None:
            held.values.update(answer.captured)
        return answer

    async def all_of(
        self, name: str, account: int, held: HeldSession | None, *, size: int = 1
    ) -> list[Answer]:
        return [await self.send(account, step, held, size=size) for step in self.wire.plan.of(name)]

    async def claim(self, account: int, size: int = 1) -> tuple[HeldSession, bool, list[Answer]]:
        """(session, whether it was granted, answers)."""
        held = HeldSession(account, {})
        answers = await self.all_of("claim", account, held, size=size)
        return held, bool(answers) and all(answer.taken for answer in answers), answers

    def look(self, answers: Iterable[Answer], reader: HeldSession, kind: str = "released data") -> None:
        """Note every marker in these answers that was not written by this very session."""
        for answer in answers:
            for token in dict.fromkeys(MARKER.findall(answer.text.lower())):
                owner = self._owners.get(token)
                if owner is None or owner is reader:
                    continue
                if owner.account == reader.account and (not owner.release or reader.release):
                    continue  # a list of one's own live sessions, or one's own old data: no leak
                self.seen.finds.append(
                    ForeignData(
                        self._kinds.get(token, kind),
                        self.wire.accounts[reader.account],
                        self.wire.accounts[owner.account],
                        token,
                        owner.release,
                        self.shared,
                        self.round,
                    )
                )

    # -- the steps of a round ----------------------------------------------------------------------

    async def seed(self, count: int) -> list[HeldSession]:
        """A takes ``count`` sessions and writes a marker into every field; the first is read back."""
        seeded: list[HeldSession] = []
        for number in range(count):
            held, granted, _ = await self.claim(A)
            if not granted:
                continue
            await self.all_of("seed", A, held)
            self.seen.seeds += 1
            seeded.append(held)
            if number == 0:
                text = "".join(answer.text for answer in await self.all_of("read", A, held)).lower()
                self.seen.own_written += len(held.markers)
                self.seen.own_read += sum(token in text for token in held.markers)
        return seeded

    def ways(self) -> list[str]:
        """The four ways in which a session ends, without those that this service does not have."""
        plan = self.wire.plan
        return [
            way
            for way in ("end", "drop", "timeout", "reject")
            if way not in plan.without and (way != "reject" or plan.of("reject")) and self._waits(way)
        ]

    def _waits(self, way: str) -> bool:
        return way not in ("drop", "timeout") or self.wire.plan.wait > 0

    async def release(self, seeded: list[HeldSession]) -> list[HeldSession]:
        """End every session in one of the ways; those that ended."""
        ways, gone, idle = self.ways(), [], False
        for number, held in enumerate(seeded):
            held.release = way = ways[(number + self.round) % len(ways)]
            if way == "end":
                ended = all(answer.taken for answer in await self.all_of("end", A, held))
            elif way == "reject":
                # The oversize request must be refused, and what it was part of must end with it.
                ended = all(400 <= answer.status < 500 for answer in await self.all_of("reject", A, held))
            else:
                ended = idle = True
                if way == "drop" and (reads := self.wire.plan.of("read")):
                    await self.send(A, reads[0], held, cut=0)
            book = self.seen.released if ended else self.seen.not_released
            book[way] = book.get(way, 0) + 1
            if ended:
                gone.append(held)
                if "slot" in held.values:
                    self._slots.add(held.values["slot"])
        if idle:
            await self.wire.sleep(float(self.wire.plan.wait))
        return gone

    async def claims(self, count: int, capacity: int | None, seeds: int) -> list[HeldSession]:
        """B takes sessions, the last of the largest size, and reads each before writing anything."""
        seen, largest = self.seen, self.seen.largest
        await self._oversize()
        got: list[HeldSession] = []
        for number in range(count):
            size = largest if largest is not None and number == count - 1 else 1
            held, granted, _ = await self.claim(B, size)
            if not granted:
                continue
            got.append(held)
            seen.claims += 1
            if "slot" in held.values:
                seen.reuse_by = "slot"
                seen.reused += held.values["slot"] in self._slots
            self.look(await self.all_of("read", B, held), held)
            if seen.finds:
                return got
        if seen.reuse_by != "slot" and capacity is not None:
            seen.reuse_by = "count"
            # More sessions than A had left free: the rest must be A's former ones.
            seen.reused += max(0, len(got) - max(0, capacity - seeds))
        for held in got:
            await self.all_of("write", B, held)
            self.look(await self.all_of("read", B, held), held)
        return got

    async def _oversize(self) -> None:
        if self.seen.largest is None:
            return
        held, granted, answers = await self.claim(B, self.seen.largest + 1)
        if any(answer.void for answer in answers):
            return
        self.seen.oversize_asked += 1
        if granted:
            self.seen.oversize_taken += 1
            await self.all_of("end", B, held)

    async def stale(self, gone: list[HeldSession], holders: list[HeldSession]) -> None:
        """A comes back with handles of ended sessions: reads, writes, and B looks again."""
        seen = self.seen
        for held in gone[:4]:
            before = set(held.markers)
            for name in ("read", "write"):
                for answer in await self.all_of(name, A, held):
                    if answer.void:
                        continue
                    seen.stale_asked += 1
                    if answer.taken:
                        found = set(MARKER.findall(answer.text.lower()))
                        if found & before:
                            seen.stale_own += 1
                        else:
                            seen.stale_taken += 1
                        self.look([answer], held, "stale handle")
                    elif answer.status not in (401, 403, 404, 409, 410):
                        seen.stale_odd += 1
            for token in set(held.markers) - before:
                self._kinds[token] = "stale handle"
        for held in holders:
            self.look(await self.all_of("read", B, held), held)

    async def late(self) -> None:
        """A's slow save is under way when A releases and B claims: it must not land at B."""
        save, seen = self.wire.plan.of("save"), self.seen
        if not save:
            return
        held, granted, _ = await self.claim(A)
        if not granted:
            return
        seen.late_tried += 1
        saving = asyncio.ensure_future(self.send(A, save[0], held))
        try:
            await self.wire.sleep(SAVE_HEAD_START)
            for token in held.markers:
                self._kinds[token] = "late write"
            held.release = "end"
            await self.all_of("end", A, held)
            others = [await self.claim(B)]
            while len(others) < LATE_CLAIMS and others[-1][1] and not _same_slot(others[-1][0], held):
                others.append(await self.claim(B))
            claimed = self.wire.now()
            saved = await saving
        finally:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
        seen.late_tested += others[-1][1] and saved.at > claimed and _same_slot(others[-1][0], held)
        for other, had, _ in others:
            if had:
                self.look(await self.all_of("read", B, other), other)
                await self.all_of("end", B, other)
                other.release = "end"

    async def cancel(self) -> None:
        """Every fifth call is cut off; whoever asks next must get the answer to its own question."""
        echo, seen = self.wire.plan.of("echo"), self.seen
        if not echo:
            return
        asked: dict[str, int] = {}
        for number in range(ECHOES):
            account = number % 2
            nonce = draw_token(self.wire.draw, "kn")
            asked[nonce] = account
            held = HeldSession(account, {"nonce": nonce})
            # By turns before the answer's head and right after it.
            cut = (0.002 if number % 2 else 0.0) if number % CUT_EVERY == 0 else None
            answer = await self.send(account, echo[0], held, cut=cut)
            if cut is not None:
                seen.cut += 1
                continue
            if answer.void:
                continue
            seen.echoes += 1
            text = answer.text.lower()
            if nonce in text:
                seen.echoes_right += 1
            for other, owner in asked.items():
                if other != nonce and other in text:
                    names = self.wire.accounts
                    seen.finds.append(
                        ForeignData(
                            "shifted reply",
                            names[account],
                            names[owner],
                            other,
                            "cancel",
                            self.shared,
                            self.round,
                        )
                    )

    # -- the pool ----------------------------------------------------------------------------------

    async def read_pool(self) -> EngineFacts | None:
        """The pool's numbers at their pointers, None with ``pool_problem`` when it cannot be read."""
        plan = self.wire.plan
        answer = await self.wire.pool()
        self.seen.requests += 1
        self.seen.evidence.extend(answer.evidence)
        if answer.status != 200:
            self.seen.pool_problem = answer.problem or f"GET {plan.pool_path} answered {answer.status}"
            return None
        engine = with_pointers(plan.pool, plan.pool_path)
        return engine.facts({plan.pool_path: Read(plan.pool_path, 200, answer.text.encode())})

    async def settled(self, before: float) -> float | None:
        """``in_use`` once it is back at its baseline, or after the wire's patience."""
        until = self.wire.now() + self.wire.patience
        while True:
            facts = await self.read_pool()
            used = None if facts is None else facts.counters.get("in_use")
            if used is None or used <= before + allowance(before) or self.wire.now() >= until:
                return used
            await self.wire.sleep(min(1.0, self.wire.patience / 4))


def _same_slot(one: HeldSession, other: HeldSession) -> bool:
    """Whether both had the same slot; where the service does not tell, any slot may be it."""
    return one.values.get("slot") == other.values.get("slot")
