"""Reading a node again over fresh connections: Services and load balancers in front of several processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.runner.reading import read_node
from kvaudit.auditor.runner.replicas import TRIES
from kvaudit.auditor.targets import Node
from kvaudit.cli import main
from tests import servers


class Service:
    """Hands each new connection to the next of its processes, as a Service does."""

    def __init__(self, *processes: servers.Behaviour, order: Sequence[int] = ()) -> None:
        self.processes = processes
        self.order = list(order)
        self.chosen: dict[Any, servers.Behaviour] = {}

    async def __call__(self, request: servers.Request, writer: asyncio.StreamWriter) -> None:
        caller = writer.get_extra_info("peername")
        if caller not in self.chosen:
            turn = len(self.chosen)
            chosen = self.order[turn % len(self.order)] if self.order else turn % len(self.processes)
            self.chosen[caller] = self.processes[chosen]
        await self.chosen[caller](request, writer)


def sglang(started: float = 1.0, pool: int = 412_672, **changed: Any) -> servers.Behaviour:
    info = json.loads(servers.payload("sglang/server_info-single-0.5.22.json"))
    info |= {"startup_time": {"load_weight": started}, "max_total_num_tokens": pool, **changed}
    info["internal_states"][0] |= {"startup_time": {"load_weight": started}}
    info["internal_states"][0]["memory_usage"]["token_capacity"] = pool
    return servers.sglang_node(info)


def vllm(started: float, **changed: servers.Recorded) -> servers.Behaviour:
    recorded = servers.recorded("vllm-0.32.0/get_metrics.http")
    body = b"\n".join(
        b"process_start_time_seconds %.2f" % started if line.startswith(b"process_start_time") else line
        for line in recorded.body.split(b"\n")
    )
    metrics = servers.Recorded(200, body, recorded.content_type)
    return servers.vllm_node(**{"metrics": metrics, **changed})


def read(
    behaviour: servers.Behaviour, connections: int = 4, replicas: int = 0
) -> tuple[NodeSeen, servers.Server]:
    async def go() -> tuple[NodeSeen, servers.Server]:
        async with servers.serving(behaviour) as server:
            node = Node("n", server.url, replicas=replicas)
            return await read_node(node, 60.0, connections), server

    return asyncio.run(go())


@pytest.mark.parametrize("process", [sglang(), vllm(1.5)])
def test_one_process_is_one_however_often_it_is_read(process: servers.Behaviour) -> None:
    seen, server = read(process)
    assert (seen.others, seen.connections, seen.unanswered) == ((), 4, "")
    assert server.connections == 4
    once, _ = read(process, connections=1)
    assert once.facts == seen.facts


def test_what_is_absent_is_not_asked_again() -> None:
    _, server = read(sglang(), connections=2)
    assert server.asked("/server_info") == 2
    assert server.asked("/readiness") == 1


def test_reads_that_take_something_from_others_are_asked_once() -> None:
    trtllm = servers.replay(
        {
            "/version": servers.answer({"version": "1.3.0rc29"}),
            "/v1/models": servers.answer({"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}),
            "/metrics": servers.answer([]),
        }
    )
    seen, server = read(trtllm, connections=6)
    assert seen.facts is not None
    assert (server.asked("/metrics"), seen.others) == (1, ())


@pytest.mark.parametrize(
    ("service", "others"),
    [
        (Service(sglang(1.0), sglang(2.0)), 1),
        (Service(sglang(1.0), sglang(2.0), sglang(3.0)), 2),
        (Service(vllm(1.5), vllm(2.5)), 1),
        (Service(sglang(1.0), sglang(1.0, pool=300_000)), 1),  # one start, two answers
        (Service(sglang(1.0), sglang(1.0, startup_time={"load_weight": 1.0, "tokenizer_e2e": 7.0})), 0),  # two front ends
    ],
)  # fmt: skip
def test_several_processes_are_told_apart(service: Service, others: int) -> None:
    seen, _ = read(service)
    assert len(seen.others) == others
    assert all(facts.pool.known and facts.context.known for facts in seen.others)  # read as a whole


def test_a_balancer_that_deals_by_the_request_is_seen_through() -> None:
    """Two processes that started in one second, and differ in nothing that the metrics tell."""
    card = {"id": "tiny-llama", "owned_by": "vllm", "parent": None}
    models = [servers.answer({"data": [{**card, "max_model_len": length}]}) for length in (2048, 8192)]
    processes = [vllm(1.5, v1__models=model) for model in models]
    asked = 0

    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += request.path == "/v1/models"
        await processes[asked % 2](request, writer)

    seen, _ = read(behave)
    assert [facts.context.value for facts in seen.others] == [2048]


def test_it_reads_until_all_declared_replicas_were_seen() -> None:
    rare = Service(sglang(1.0), sglang(2.0), order=[0] * 12 + [1])
    assert not read(rare)[0].others
    seen, _ = read(Service(*rare.processes, order=rare.order), replicas=2)
    assert len(seen.others) == 1


def test_the_search_for_declared_replicas_ends() -> None:
    seen, server = read(sglang(), replicas=2)
    assert not seen.others
    assert server.connections <= 1 + 2 * TRIES


def test_a_replica_that_is_down_is_said() -> None:
    seen, _ = read(Service(sglang(1.0), servers.raw(b"")))
    assert seen.facts is not None
    assert "closed the connection" in seen.unanswered


@pytest.mark.parametrize("status", [401, 503])
def test_a_replica_that_refuses_is_said(status: int) -> None:
    async def refuse(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await servers.replay({request.path: servers.answer({}, status)})(request, writer)

    seen, _ = read(Service(sglang(1.0), refuse))
    assert f"answered {status}, and 200 before" in seen.unanswered


def test_one_connection_that_fails_once_is_tried_again() -> None:
    seen, _ = read(Service(sglang(1.0), servers.raw(b""), order=[0, 1, 0, 0, 0]))
    assert (seen.unanswered, seen.connections) == ("", 4)


def gate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["gate", *arguments])
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.parametrize(
    ("processes", "more", "code", "says"),
    [
        ((sglang(1.0),), [], 0, ""),
        ((sglang(1.0), sglang(2.0)), [], 2, "several processes answer"),
        ((sglang(1.0), sglang(2.0)), ["--replicas", "2"], 0, ""),
        ((sglang(1.0), sglang(2.0, pool=300_000)), ["--replicas", "2"], 2, "KV pool 412,672 against 300,000"),
        ((sglang(1.0), sglang(2.0, pool=30_000)), ["--replicas", "2"], 1, "holds 30,000"),
        ((sglang(1.0), sglang(2.0)), ["--replicas", "3"], 2, "3 replicas were declared"),
        ((sglang(1.0),), ["--replicas", "none"], 3, "--replicas must be a whole number"),
        ((sglang(1.0),), ["--replicas", "0"], 3, "between 1 and 100"),
    ],
)  # fmt: skip
def test_the_gate(
    capsys: pytest.CaptureFixture[str],
    processes: tuple[servers.Behaviour, ...],
    more: list[str],
    code: int,
    says: str,
) -> None:
    with servers.background(Service(*processes)) as server:
        found, said = gate(capsys, "--node", server.url, *more)
    assert found == code, said
    assert says in said


def test_the_report_names_every_process(capsys: pytest.CaptureFixture[str]) -> None:
    with servers.background(Service(sglang(1.0), sglang(2.0, pool=300_000))) as server:
        main(["gate", "--node", server.url, "--json"])
    document = json.loads(capsys.readouterr().out)
    [other] = document["target"]["nodes"][0]["others"]
    assert other["pool"]["value"] == 300_000
    assert [node["pool"]["value"] for node in document["results"][0]["measures"]["nodes"]] == [
        412_672,
        300_000,
    ]


@pytest.mark.parametrize(("field", "code"), [("", 2), (", replicas: 2", 0), (", replicas: x", 3)])
def test_a_fleet_file_says_how_many(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, field: str, code: int
) -> None:
    with servers.background(Service(sglang(1.0), sglang(2.0))) as server:
        fleet = tmp_path / "fleet.yaml"
        fleet.write_text(
            "schema: kvaudit.fleet/1\ndeployments:\n  - slug: m\n    nodes:\n"
            f"      - {{name: vip, url: '{server.url}', role: unified{field}}}\n"
        )
        found, said = gate(capsys, "--target", str(fleet))
    assert found == code, said
