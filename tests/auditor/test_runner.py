"""The runner: nodes at once, checks in order, and an end under all circumstances."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from kvaudit.auditor import checks as registry
from kvaudit.auditor import runner
from kvaudit.auditor.checks.contract import Audit, History, NodeSeen
from kvaudit.auditor.runner import Budget, CheckFinished, CheckStarted, NodeRead
from kvaudit.auditor.targets import Credentials, Node, Target
from kvaudit.auditor.verdict import Result, Verdict
from kvaudit.lab.clock import run_virtual
from tests import servers
from tests.waiting import bounded


class Fake:
    """A check that does what its test says."""

    id: ClassVar[str] = "fake"

    def __init__(self, name: str, observe: Any = None, judge: Any = None) -> None:
        self.name, self._observe, self._judge = name, observe, judge
        self.audits: list[Audit] = []

    async def observe(self, audit: Audit) -> Any:
        self.audits.append(audit)
        return await self._observe(audit) if self._observe else None

    def judge(self, seen: Any, audit: Audit) -> Result:
        if self._judge:
            return self._judge(seen, audit)  # type: ignore[no-any-return]
        return Result(self.name, Verdict.PASS, "fine", measures={"seen": seen})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    known: dict[str, Fake] = {}
    described = registry.describe("pool")
    monkeypatch.setattr(registry, "get", lambda name: known[name])
    monkeypatch.setattr(registry, "describe", lambda name: replace(described, id=name))

    def add(name: str, **behaviour: Any) -> Fake:
        known[name] = Fake(name, **behaviour)
        return known[name]

    return add


def node(name: str, url: str, **more: Any) -> Node:
    return Node(name, url, **more)


def collect(target: Target, checks: list[str], *, by: Any = asyncio.run, **options: Any) -> list[Any]:
    async def main() -> list[Any]:
        return [event async for event in runner.run(target, checks, **options)]

    events: list[Any] = by(main())
    return events


def finished(events: list[Any]) -> list[Result]:
    return [event.result for event in events if isinstance(event, CheckFinished)]


NOWHERE = Target("d", (node("n", "http://127.0.0.1:9"),))


def test_events_come_in_order_and_every_check_sees_the_same_nodes(install: Any) -> None:
    first, second = install("one"), install("two")

    async def main() -> list[Any]:
        async with servers.serving(servers.vllm_node()) as server:
            target = Target("d", (node("a", server.url, role="prefill"), node("b", "http://127.0.0.1:9")))
            return [event async for event in runner.run(target, ["one", "two"])]

    events = asyncio.run(main())
    kinds = [type(event) for event in events]
    assert kinds == [NodeRead, NodeRead, CheckStarted, CheckFinished, CheckStarted, CheckFinished]
    [audit] = first.audits
    assert audit.nodes == second.audits[0].nodes
    assert [seen.name for seen in audit.nodes] == ["a", "b"]  # the target's order, not the order of answers
    assert audit.nodes[0].facts is not None
    assert audit.nodes[0].role == "prefill"
    assert "refused" in audit.nodes[1].problem
    assert audit.nodes[1].transient
    assert audit.expected_roles == {"prefill"}


def test_audit_carries_rules_history_and_completeness(install: Any) -> None:
    check = install("one")
    history = History(gate_expired=True)
    target = replace(NOWHERE, complete=True, rules=replace(NOWHERE.rules, headroom=1.5))
    collect(target, ["one"], history=history)
    [audit] = check.audits
    assert (audit.complete, audit.rules.headroom, audit.history, audit.deployment) == (
        True,
        1.5,
        history,
        "d",
    )


def test_nodes_are_read_at_once(install: Any) -> None:
    """Every node's first request is held back until all twenty are there: one after another hangs."""
    install("one")
    waiting: set[asyncio.StreamWriter] = set()
    inner = servers.vllm_node()

    async def main() -> int:
        everyone = asyncio.Event()

        async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
            waiting.add(writer)
            if len(waiting) == 20:
                everyone.set()
            await everyone.wait()
            await inner(request, writer)

        async with servers.serving(behave) as server:
            # distinct names, one address: each node has a client of its own
            target = Target("d", tuple(node(f"n{at}", server.url) for at in range(20)))
            events = [event async for event in runner.run(target, ["one"])]
            return sum(isinstance(event, NodeRead) and event.node.facts is not None for event in events)

    assert asyncio.run(main()) == 20


def test_concurrency_is_bounded(install: Any) -> None:
    """The first three are held until all are there, and long enough for a fourth to come if it may."""
    install("one")
    busy = peak = 0
    inner = servers.vllm_node()

    async def main() -> None:
        three = asyncio.Event()

        async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
            nonlocal busy, peak
            busy += 1
            peak = max(peak, busy)
            if peak >= 3:
                three.set()
            await three.wait()
            for _ in range(100):  # turns of the loop that client and server share
                await asyncio.sleep(0)
            await inner(request, writer)
            busy -= 1

        async with servers.serving(behave) as server:
            target = Target("d", tuple(node(f"n{at}", server.url) for at in range(12)))
            _ = [event async for event in runner.run(target, ["one"], budget=Budget(concurrency=3))]

    asyncio.run(main())
    assert peak == 3


@pytest.mark.parametrize("where", ["observe", "judge"])
def test_exception_in_a_check_is_its_error_and_the_others_go_on(
    install: Any, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    async def observe(audit: Audit) -> None:
        raise KeyError("--api-key sk-VERY-SECRET-0123456789")

    def judge(seen: Any, audit: Audit) -> Result:
        raise KeyError("--api-key sk-VERY-SECRET-0123456789")

    install("bad", **{where: locals()[where]})
    install("good")
    with caplog.at_level(logging.ERROR):
        bad, good = finished(collect(NOWHERE, ["bad", "good"]))
    assert bad.verdict is Verdict.ERROR
    assert "broke inside kvaudit (KeyError" in bad.summary
    assert "VERY-SECRET" not in bad.summary
    assert good.verdict is Verdict.PASS
    assert "check bad failed" in caplog.text
    assert "Traceback" in caplog.text
    assert "VERY-SECRET" not in caplog.text


def test_unknown_check_is_an_error(install: Any) -> None:
    [result] = finished(collect(NOWHERE, ["nonsense"]))
    assert result.verdict is Verdict.ERROR


def test_deadline_inside_a_check(install: Any) -> None:
    async def forever(audit: Audit) -> None:
        await asyncio.Event().wait()

    install("slow", observe=forever)
    install("later")
    results = finished(collect(NOWHERE, ["slow", "later"], budget=Budget(seconds=0.3)))
    assert [result.verdict for result in results] == [Verdict.ERROR, Verdict.ERROR]
    assert all("deadline of 0.3 s" in result.summary for result in results)
    assert all("more time" in result.next for result in results)


def test_deadline_while_reading_leaves_every_node_with_a_problem(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = install("one")

    async def never(node: Node, seconds: float, connections: int) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(runner, "read_node", never)
    target = Target("d", (node("a", "http://127.0.0.1:9"), node("b", "http://127.0.0.1:9")))
    with bounded(60, "reading nodes that never answer"):
        events = collect(target, ["one"], budget=Budget(seconds=0.2))
    problems = [event.node.problem for event in events if isinstance(event, NodeRead)]
    assert len(problems) == 2
    assert all("deadline of 0.2 s" in problem for problem in problems)
    [result] = finished(events)
    assert result.verdict is Verdict.ERROR
    assert check.audits == []


def test_a_hanging_node_has_its_own_sentence_before_the_deadline(install: Any) -> None:
    check = install("one")

    async def main() -> list[Any]:
        async with servers.serving(servers.hanging()) as server:
            target = Target("d", (node("a", server.url),))
            budget = Budget(seconds=60, node_seconds=0.5)
            return [event async for event in runner.run(target, ["one"], budget=budget)]

    [result] = finished(asyncio.run(main()))
    assert result.verdict is Verdict.PASS
    assert "sent nothing" in check.audits[0].nodes[0].problem


def test_cancellation_before_the_first_check(install: Any) -> None:
    install("one")
    install("two")
    results = finished(collect(NOWHERE, ["one", "two"], cancelled=lambda: True))
    assert [result.verdict for result in results] == [Verdict.ERROR] * 2
    assert all("cancelled" in result.summary for result in results)


def test_cancellation_between_checks_keeps_what_is_done(install: Any) -> None:
    stop: list[bool] = []

    async def observe(audit: Audit) -> None:
        stop.append(True)

    install("one", observe=observe)
    install("two")
    one, two = finished(collect(NOWHERE, ["one", "two"], cancelled=lambda: bool(stop)))
    assert (one.verdict, two.verdict) == (Verdict.PASS, Verdict.ERROR)


def test_cancellation_while_a_node_hangs_is_seen_soon(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install("one")
    asked: list[Node] = []

    async def never(node: Node, seconds: float, connections: int) -> Any:
        asked.append(node)
        await asyncio.Event().wait()

    monkeypatch.setattr(runner, "read_node", never)
    with bounded(60, "cancelling while a node hangs for an hour"):
        [result] = finished(
            collect(NOWHERE, ["one"], budget=Budget(seconds=3600), cancelled=lambda: bool(asked))
        )
    assert "cancelled" in result.summary


def test_leaving_early_stops_the_reading(install: Any) -> None:
    async def main() -> int:
        async with servers.serving(servers.hanging()) as server:
            target = Target("d", (node("a", "http://127.0.0.1:9"), node("b", server.url)))
            events = runner.run(target, ["one"])
            first = await anext(events)
            assert isinstance(first, NodeRead)
            await events.aclose()
            return len([task for task in asyncio.all_tasks() if "one" in str(task.get_coro())])

    assert asyncio.run(main()) == 0


def test_asking_anonymously_sends_no_credential(install: Any) -> None:
    asked: list[Any] = []

    async def observe(audit: Audit) -> None:
        assert audit.ask_anonymously is not None
        asked.append(await audit.ask_anonymously("n", "/v1/models"))
        asked.append(await audit.ask_anonymously("n", "/version"))
        asked.append(await audit.ask_anonymously("n", "/never/asked"))

    install("one", observe=observe)
    key = "sk-tenant-key-1"

    async def main() -> list[servers.Request]:
        async with servers.serving(servers.vllm_node(key=key)) as server:
            credentials = Credentials(headers=(("Authorization", f"Bearer {key}"),))
            target = Target("d", (node("n", server.url, credentials=credentials),))
            _ = [event async for event in runner.run(target, ["one"])]
            return server.requests

    requests = asyncio.run(main())
    assert [answer.status for answer in asked] == [401, 200, 0]
    assert "allow-list" in asked[2].problem
    anonymous = [request for request in requests if "authorization" not in request.headers]
    assert [request.path for request in anonymous] == ["/v1/models", "/version"]
    assert not any("/never" in request.path for request in requests)


@pytest.mark.parametrize(
    ("described", "says"),
    [
        (node("n", "http://169.254.169.254"), "link-local"),
        (node("n", "nonsense"), "must begin with http"),
        (node("n", "http://127.0.0.1:9", engine="tgi2"), "no engine called"),
        (
            node("n", "http://127.0.0.1:9", credentials=Credentials(headers=(("X", "very-secret\r\n"),))),
            "line break",
        ),
        (
            node("n", "https://127.0.0.1:9", credentials=Credentials(ca_file="/nonexistent/ca.pem")),
            "cannot be read",
        ),
    ],
)
def test_unusable_node_is_a_sentence(described: Node, says: str) -> None:
    seen = asyncio.run(runner.read_node(described))
    assert seen.facts is None
    assert says in seen.problem
    assert "very-secret" not in repr(seen)


def test_results_gathers_everything(install: Any) -> None:
    install("one")
    nodes, results = asyncio.run(runner.results(NOWHERE, ["one"]))
    assert [each.name for each in nodes] == ["n"]
    assert [result.check for result in results] == ["one"]


def test_one_node_that_hangs_to_the_end_does_not_hide_the_others(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judged(audit: Audit) -> list[str]:
        return [each.name for each in audit.nodes if not each.problem]

    check = install("one", observe=judged)

    async def one_hangs(node: Node, seconds: float, connections: int) -> NodeSeen:
        if node.name == "b":
            await asyncio.Event().wait()
        return NodeSeen(node.name, node.url)

    monkeypatch.setattr(runner, "read_node", one_hangs)
    target = Target("d", tuple(node(name, "http://127.0.0.1:9") for name in "abc"))
    events = collect(target, ["one"], by=run_virtual, budget=Budget(seconds=0.5))
    [result] = finished(events)
    assert result.verdict is not Verdict.ERROR
    assert result.measures["seen"] == ["a", "c"]
    assert check is not None


def test_a_fail_names_the_nodes_that_it_says_nothing_about(install: Any) -> None:
    """What is worse is said first, and hid that a node had hung."""
    install("one", judge=lambda seen, audit: Result("one", Verdict.FAIL, "It is too small."))
    install("two", judge=lambda seen, audit: Result("two", Verdict.INCONCLUSIVE, "n could not be read."))
    first, second = finished(collect(NOWHERE, ["one", "two"]))
    assert first.summary.startswith(
        "It is too small. Nothing is known of the rest: n could not be read: 127.0.0.1:9 refused"
    )
    assert second.summary == "n could not be read."
