"""Reading a node: recognition, wrong declarations, keys, and every way a node can fail to answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvaudit.auditor.engines import fetch
from kvaudit.auditor.transport import Client, Limits
from tests import servers
from tests.waiting import bounded

PATIENT = Limits(total=20, connect=10, read=20)
SILENT = Limits(total=30, connect=30, read=0.3)  # a server that sends nothing is given up early
MIXED = Limits(total=30, connect=30, read=3.0)  # some paths answer, on a slow machine too, and one never
TRTLLM = servers.replay(
    {
        "/version": servers.answer({"version": "1.3.0rc29"}),
        "/v1/models": servers.answer(
            {"object": "list", "data": [{"id": "Qwen3-8B", "object": "model", "owned_by": "tensorrt_llm"}]}
        ),
        "/metrics": servers.answer([]),
    }
)


def sglang(name: str = "prefill-0.5.19", **more: Any) -> servers.Behaviour:
    return servers.sglang_node(servers.payload(f"sglang/server_info-{name}.json"), **more)


def read(
    behaviour: servers.Behaviour,
    engine: str = "auto",
    *,
    key: str = "",
    seconds: float = 30.0,
    limits: Limits = PATIENT,
) -> tuple[fetch.NodeReading, servers.Server]:
    async def main() -> tuple[fetch.NodeReading, servers.Server]:
        adapters = fetch.adapters_for(engine)
        headers = [("Authorization", f"Bearer {key}")] if key else []
        async with (
            servers.serving(behaviour) as server,
            Client(server.url, allow=fetch.allowed(adapters), headers=headers, limits=limits) as client,
        ):
            got = await fetch.read_node(client, adapters, declared=engine != "auto", seconds=seconds)
            return got, server

    return asyncio.run(main())


@pytest.mark.parametrize("engine", ["auto", "sglang"])
def test_sglang(engine: str) -> None:
    got, server = read(sglang(), engine)
    assert got.facts is not None
    assert got.problem == ""
    assert (got.facts.engine, got.facts.pool.value, got.facts.version.value) == ("sglang", 681280, "0.5.19")
    assert server.asked("/get_server_info") == 0  # the new name answered
    assert {item.source.split("/", 3)[3] for item in got.evidence} >= {"server_info", "v1/models"}


@pytest.mark.parametrize("engine", ["auto", "vllm"])
def test_vllm(engine: str) -> None:
    got, _ = read(servers.vllm_node(key="sk-test-1234"), engine, key="sk-test-1234")
    assert got.facts is not None
    assert (got.facts.engine, got.facts.version.value, got.facts.context.value) == ("vllm", "0.32.0", 2048)


def test_recognition_never_drains_the_metrics_of_another_engine() -> None:
    """TensorRT-LLM's /metrics takes its queue; it is asked once, after recognition, and not to recognise."""
    got, server = read(TRTLLM)
    assert got.facts is not None
    assert got.facts.engine == "trtllm"
    assert server.asked("/metrics") == 1
    got, server = read(TRTLLM, "sglang")
    assert "looks like trtllm" in got.problem
    assert server.asked("/metrics") == 0


def test_no_path_is_asked_twice() -> None:
    for behaviour in (sglang(), servers.vllm_node(), TRTLLM, servers.html()):
        _, server = read(behaviour)
        paths = [request.path for request in server.requests]
        assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("behaviour", "declared", "looks_like"),
    [(sglang(), "vllm", "sglang"), (servers.vllm_node(), "sglang", "vllm"), (TRTLLM, "vllm", "trtllm")],
)
def test_wrong_engine_is_said(behaviour: servers.Behaviour, declared: str, looks_like: str) -> None:
    got, _ = read(behaviour, declared)
    assert got.facts is None
    assert f"declared as {declared}, but this looks like {looks_like}" in got.problem
    assert f"--engine {looks_like}" in got.problem
    assert not got.transient


def test_unknown_engine_name() -> None:
    with pytest.raises(ValueError, match="no engine called 'tgi2'"):
        fetch.adapters_for("tgi2")


def test_missing_and_refused_key_have_different_sentences() -> None:
    none, _ = read(servers.vllm_node(key="sk-right-key"))
    assert "answered 401: it wants a key and none was sent" in none.problem
    assert "--api-key-env" in none.problem
    wrong, _ = read(servers.vllm_node(key="sk-right-key"), key="sk-wrong-key")
    assert "the key that was sent is refused" in wrong.problem
    assert "sk-wrong-key" not in wrong.problem
    assert not none.transient
    assert not wrong.transient


def test_a_whole_node_behind_a_key() -> None:
    got, _ = read(sglang(key="sk-right-key"))
    assert "answered 401" in got.problem


def test_html() -> None:
    got, _ = read(servers.html())
    assert "answered 200 with an HTML page" in got.problem


def test_loading() -> None:
    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    got, _ = read(behave)
    assert "answered 503" in got.problem
    assert got.transient


def test_another_json_service() -> None:
    got, _ = read(servers.replay({"/version": servers.answer({"gitVersion": "v1.31.0"})}))
    assert "not like any engine that kvaudit knows" in got.problem
    assert "/version 200" in got.problem


def test_hanging_node_ends_at_its_deadline_with_the_first_sentence() -> None:
    async def main() -> fetch.NodeReading:
        adapters = fetch.adapters_for("auto")
        async with (
            servers.serving(servers.hanging()) as server,
            Client(server.url, allow=fetch.allowed(adapters), limits=SILENT) as client,
        ):
            return await fetch.read_node(client, adapters, declared=False, seconds=1.0)

    with bounded(30, "reading a node that hangs"):
        got = asyncio.run(main())
    assert "sent nothing for 0.3 s" in got.problem


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        (
            servers.redirecting("http://169.254.169.254/latest"),
            "wanted to send us to http://169.254.169.254/latest",
        ),
        (servers.hanging(), "sent nothing"),
    ],
)
def test_a_read_that_fails_is_the_problem_when_its_number_is_missing(
    metrics: servers.Behaviour, says: str
) -> None:
    """vLLM tells its pool only in /metrics: without it nothing was learnt, and that is an error."""
    healthy = servers.vllm_node()

    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await (metrics if request.path == "/metrics" else healthy)(request, writer)

    got, _ = read(behave, limits=MIXED if says == "sent nothing" else PATIENT)
    assert got.facts is None
    assert says in got.problem


def test_a_read_that_fails_is_no_problem_when_nothing_is_missing() -> None:
    healthy = sglang()

    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await (servers.hanging() if request.path == "/metrics" else healthy)(request, writer)

    got, _ = read(behave, limits=MIXED)
    assert got.facts is not None
    assert got.facts.pool.value == 681280


@pytest.mark.parametrize(
    "metrics",
    [
        servers.endless(),
        servers.gzip_bomb(16),
        servers.replay({"/metrics": servers.Recorded(200, b'vllm:x{hf_config="' + b"x" * 9_000_000)}),
    ],
)
def test_an_answer_that_is_too_large_is_left_aside_alone(metrics: servers.Behaviour) -> None:
    """vllm#44691: one label of 22 MB. Version and context were read, and the pool is unknown."""
    healthy = servers.vllm_node()

    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await (metrics if request.path == "/metrics" else healthy)(request, writer)

    got, _ = read(behave)
    assert got.facts is not None
    assert (got.facts.version.value, got.facts.context.value) == ("0.32.0", 2048)
    assert not got.facts.pool.known
    assert "more than 8 MiB" in got.facts.pool.source
    assert "this answer does not count" in got.facts.pool.source


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/chat/completions", "/openai/v1"])
@pytest.mark.parametrize("key", ["", "sk-right-key"])
def test_the_base_url_of_a_client_library_is_not_the_engines(path: str, key: str) -> None:
    async def main() -> fetch.NodeReading:
        adapters = fetch.adapters_for("auto")
        async with (
            servers.serving(sglang(key=key)) as server,
            Client(server.url + path, allow=fetch.allowed(adapters), limits=PATIENT) as client,
        ):
            return await fetch.read_node(client, adapters, declared=False, seconds=30.0)

    got = asyncio.run(main())
    assert "leave /v1 and what follows off" in got.problem


@pytest.mark.parametrize(
    ("status", "said"),
    [(400, b"No required SSL certificate was sent"), (495, b"The SSL certificate error"), (496, b"SSL Certificate Required")],
)  # fmt: skip
def test_a_proxy_that_wants_a_client_certificate(status: int, said: bytes) -> None:
    page = servers.Recorded(status, b"<html><title>" + said + b"</title></html>", "text/html")

    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await servers.replay({request.path: page})(request, writer)

    got, _ = read(behave)
    assert "wants a client certificate: give --client-cert" in got.problem


def test_hidden_pool_is_facts_with_an_unknown() -> None:
    """The engine answered properly and does not tell: that is for the check to call inconclusive."""
    got, _ = read(
        servers.sglang_node(
            {"version": "0.5.22", "model_path": "m", "internal_states": [], "context_length": 4096}
        )
    )
    assert got.facts is not None
    assert not got.facts.pool.known


def test_a_router_is_recognised_and_no_node() -> None:
    got, _ = read(
        servers.replay(
            {
                "/workers": servers.recorded("sglang/workers-gateway.json"),
                "/readiness": servers.answer({"status": "ready", "healthy_workers": 2}),
            }
        )
    )
    assert got.facts is not None
    assert got.facts.kind == "router"
    assert {worker.role for worker in got.facts.workers} == {"prefill", "decode"}


def test_exposed_secrets_are_named_and_gone() -> None:
    got, _ = read(sglang("single-0.5.22"))
    assert got.facts is not None
    assert all(b"SECRET" not in (item.body or b"") for item in got.evidence)
    assert "SECRET" not in repr(got)
    assert any("api_key" in exposure.what for exposure in got.facts.exposures)
