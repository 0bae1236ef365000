"""Reads one node: fetches an adapter's plan, recognises the engine, returns its facts or the reason why not.

While the engine is not known only steps marked ``identifies`` are asked, each path once over all
adapters: they are harmless on every engine. The rest of the recognised adapter's plan follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor import engines
from kvaudit.auditor.engines.answers import Answer, Answers, Step
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.readings import EngineFacts, Reading
from kvaudit.auditor.transport import BodyTooLarge, Client, Limits, TransportError
from kvaudit.auditor.verdict import Evidence


@dataclass(frozen=True, slots=True)
class NodeReading:
    """What reading one node brought. Exactly one of ``facts`` and ``problem`` is set.

    ``transient``: the problem may pass by waiting (refused, 503, still loading). ``adapter`` read it, and of its plan
    the paths of ``answered`` brought something.
    """

    facts: EngineFacts | None = None
    problem: str = ""
    transient: bool = False
    evidence: tuple[Evidence, ...] = ()
    adapter: Adapter | None = None
    answered: frozenset[str] = frozenset()


def allowed(adapters: Iterable[Adapter]) -> frozenset[tuple[str, str]]:
    """The allow-list of these adapters' reads and checks, as the transport wants it."""
    pairs: set[tuple[str, str]] = set()
    for adapter in adapters:
        pairs.update(("GET", step.path) for step in adapter.plan)
        pairs.update(("GET", path) for path in adapter.gets)
        pairs.update(("POST", path) for path in adapter.posts)
    return frozenset(pairs)


def adapters_for(engine: str, pointers: tuple[tuple[str, str], ...] = ()) -> tuple[Adapter, ...]:
    """The adapters that may be asked for this declared engine, the declared one first; ``pointers``
    are the JSON pointers of a generic pool. ValueError with a sentence when there is no such engine."""
    if engine in ("", "auto"):
        return tuple(engines.get(name) for name in engines.RECOGNISABLE)
    first = engines.get(engine)
    if engines.describe(engine).by_pointers:
        from kvaudit.auditor.engines.generic.adapter import with_pointers

        first = with_pointers(pointers)
    return (first, *(engines.get(name) for name in engines.RECOGNISABLE if name != engine))


async def read_node(
    client: Client,
    adapters: Sequence[Adapter],
    *,
    declared: bool,
    seconds: float = 10.0,
) -> NodeReading:
    """Read one node within ``seconds``. ``adapters`` as from `adapters_for`; with ``declared`` the
    first of them is what the operator says it is. Never raises for anything the node does."""
    session = _NodeSession(client, seconds)
    found = await session.recognise(adapters[:1] if declared else adapters, identify_only=True)
    if found is None and declared and not session.hopeless:
        other = await session.recognise(adapters[1:], identify_only=True)
        if other is not None:
            return session.failed(
                f"{client.base} was declared as {adapters[0].id}, but this looks like {other.id}: "
                f"give --engine {other.id} (or auto), or the right address."
            )
        # Nobody else's: now the declared engine's further paths can do no harm.
        found = await session.recognise(adapters[:1], identify_only=False)
    if found is None:
        return session.failed(session.why_unrecognised(adapters[0].title if declared else ""))
    await session.ask(found.plan)
    facts = found.facts(session.answers)
    missing = _missing(facts)
    hindrance = session.hindrance(found) if missing else ""
    if hindrance:
        return session.failed(hindrance)
    answered = frozenset(path for path, answer in session.answers.items() if answer.status == 200)
    return NodeReading(facts=facts, evidence=tuple(session.evidence), adapter=found, answered=answered)


async def read_again(
    client: Client, first: NodeReading, *, seconds: float, enough: Callable[[EngineFacts], bool]
) -> NodeReading:
    """What answered before, over another client: only what tells the process while that is ``enough``, else the whole
    plan but for reads that take something from others. Never raises for anything the node does."""
    adapter = first.adapter
    if adapter is None:
        raise ValueError("a node that was not recognised cannot be read again")
    session = _NodeSession(client, seconds)
    plan = [step for step in adapter.plan if step.path in first.answered and not step.destructive]
    for step in plan:
        if step.process and not session.hopeless:
            await session.ask([step])
            facts = adapter.facts(session.answers)
            if facts.process.known and enough(facts):
                return NodeReading(facts=facts, adapter=adapter)
    await session.ask(plan)
    problem = session.first_problem() or session.refusal()
    if problem:
        return NodeReading(problem=problem)
    return NodeReading(adapter.facts(session.answers), evidence=tuple(session.evidence), adapter=adapter)


def _missing(facts: EngineFacts) -> list[str]:
    """The readings that the gate cannot do without and this node did not give."""
    if facts.kind != "node":
        return []
    needed: dict[str, Reading[Any]] = {"version": facts.version, "context": facts.context, "pool": facts.pool}
    return [name for name, reading in needed.items() if not reading.known]


class _NodeSession:
    """The answers of one node, gathered step by step under one deadline."""

    def __init__(self, client: Client, seconds: float) -> None:
        self.answers: dict[str, Answer] = {}
        self.evidence: list[Evidence] = []
        self.hopeless = False  # a failure that no other path of this node can escape
        self.transient = False
        self._client = client
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds

    async def recognise(self, adapters: Sequence[Adapter], *, identify_only: bool) -> Adapter | None:
        for adapter in adapters:
            steps = [step for step in adapter.plan if step.identifies or not identify_only]
            await self.ask(steps)
            if self._any_answer() and adapter.recognises(self.answers):
                return adapter
            if self.hopeless:
                return None
        return None

    async def ask(self, steps: Sequence[Step]) -> None:
        """Ask what was not asked yet, in order."""
        for step in steps:
            if self.hopeless:
                return
            if step.path in self.answers or (step.unless and self._status(step.unless) == 200):
                continue
            self.answers[step.path] = await self._get(step.path)

    async def _get(self, path: str) -> Answer:
        left = self._until - asyncio.get_running_loop().time()
        if left <= 0:
            self.hopeless = True
            return Answer(path, 0, problem=self.first_problem() or self._late(path))
        usual = self._client.limits
        limits = Limits(min(usual.total, left), min(usual.connect, left), usual.read, usual.body)
        try:
            response = await self._client.get(path, limits=limits)
        except TransportError as error:
            self.transient = self.transient or error.transient
            self.hopeless = self.hopeless or error.fatal
            return Answer(path, 0, problem=str(error), dropped=isinstance(error, BodyTooLarge))
        if response.status == 503:
            self.transient = True
        if response.body:
            self.evidence.append(response.evidence())
        return Answer(path, response.status, response.body, response.content_type, "", response.exposed)

    def failed(self, problem: str) -> NodeReading:
        return NodeReading(problem=problem, transient=self.transient, evidence=tuple(self.evidence))

    def why_unrecognised(self, title: str) -> str:
        """The sentence for a node that no adapter recognised, most telling cause first."""
        where = self._client.base
        if not self._any_answer():
            return self.first_problem() or f"{where} was not asked anything: no reading plan for it."
        elsewhere = self._below_v1() or self._without_certificate()
        if elsewhere:
            return elsewhere
        keyless = self._keyless()
        if keyless:
            return keyless
        unavailable = self._first(lambda answer: answer.status == 503)
        if unavailable:
            return f"{where}{unavailable.path} answered 503: the server is still starting, or refuses work."
        page = self._first(lambda answer: answer.status == 200 and _is_html(answer))
        if page:
            return (
                f"{where}{page.path} answered 200 with an HTML page instead of an engine's JSON: "
                "this is a web page, a login or a proxy. Give the engine's own address."
            )
        problem = self.first_problem()
        good = self._first(lambda answer: answer.status == 200)
        if problem and not good:
            return problem
        broken = self._first(lambda answer: answer.status >= 500)
        if broken and not good:
            return f"{where}{broken.path} answered {broken.status}: the server is in trouble, see its log."
        got = ", ".join(f"{answer.path} {answer.status or 'no answer'}" for answer in self.answers.values())
        expected = title or "any engine that kvaudit knows"
        return f"{where} answers, but not like {expected} ({got}); check the address, or give --engine."

    def refusal(self) -> str:
        """The sentence for a path that answered before, and not now: a replica that starts, or wants another key."""
        said = self._first(lambda answer: answer.status not in (0, 200))
        return f"{self._client.base}{said.path} answered {said.status}, and 200 before." if said else ""

    def _below_v1(self) -> str:
        """The sentence for the base URL of a client library, which ends in /v1."""
        if "v1" not in self._client.base.prefix.split("/"):
            return ""
        return (
            f"{self._client.base} answers, but an engine's own paths lie beside /v1, not below it: leave /v1 and what "
            "follows off the address."
        )

    def _without_certificate(self) -> str:
        """The sentence for nginx (400, 495, 496) where it wants a client certificate, or another one."""
        said = self._first(
            lambda answer: (
                answer.status in (400, 495, 496) and b"ssl certificate" in answer.body[:2000].lower()
            )
        )
        if said is None:
            return ""
        where = f"{self._client.base}{said.path} answered {said.status}: the proxy there"
        if self._client.sends_certificate:
            return f"{where} refuses the client certificate that was sent."
        return (
            f"{where} wants a client certificate: give --client-cert and --client-key (client_cert and client_key "
            "in the fleet file)."
        )

    def hindrance(self, adapter: Adapter) -> str:
        """Why readings are missing although the engine is known: a key, or a read that failed."""
        planned = {step.path for step in adapter.plan}
        keyless = self._keyless(planned)
        if keyless:
            return keyless
        failed = self._first(
            lambda answer: answer.path in planned and answer.status == 0 and not answer.dropped
        )
        return failed.problem if failed else ""

    def _keyless(self, paths: Collection[str] | None = None) -> str:
        """The sentence for the first path that asked for a key, among ``paths`` or all; else ""."""
        asked = self.answers if paths is None else paths
        answer = self._first(lambda answer: answer.status in (401, 403) and answer.path in asked)
        if answer is None:
            return ""
        where = f"{self._client.base}{answer.path} answered {answer.status}"
        if self._client.sends_credentials:
            return f"{where}: the key that was sent is refused; check the variable that holds it."
        return (
            f"{where}: it wants a key and none was sent; name the variable that holds it "
            "with --api-key-env, or headers_env in the fleet file."
        )

    def _first(self, wanted: Callable[[Answer], bool]) -> Answer | None:
        return next((answer for answer in self.answers.values() if wanted(answer)), None)

    def first_problem(self) -> str:
        answer = self._first(lambda answer: bool(answer.problem))
        return answer.problem if answer else ""

    def _any_answer(self) -> bool:
        return any(answer.status for answer in self.answers.values())

    def _status(self, path: str) -> int:
        answer = self.answers.get(path)
        return answer.status if answer else 0

    def _late(self, path: str) -> str:
        return f"{self._client.base}{path} was not asked: reading took longer than {self._seconds:g} s."


def _is_html(answer: Answer) -> bool:
    start = answer.body[:200].lstrip().lower()
    return "html" in answer.content_type.lower() or start.startswith((b"<!doctype html", b"<html"))


__all__ = ["Answers", "NodeReading", "adapters_for", "allowed", "read_again", "read_node"]
