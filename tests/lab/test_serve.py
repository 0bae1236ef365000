"""The lab as a process of its own on real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from kvaudit.auditor.transport import Client, Limits
from kvaudit.lab.serve import listen
from tests.lab.asking import AMBER, WALNUT, frames
from tests.waiting import PATIENCE


@contextmanager
def process(*arguments):
    """`kvaudit lab ARGUMENTS --json`; yields what it prints."""
    command = [sys.executable, "-m", "kvaudit.cli", "lab", *arguments, "--json"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield json.loads(running.stdout.readline()), running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(PATIENCE)
        finally:
            running.kill()
            running.communicate()


def ask(about, tenant, prompt, tokens):
    async def main():
        key = about["tenants"][tenant]["key"]
        headers = [("Authorization", f"Bearer {key}")]
        async with Client(about["entry"], allow=[("POST", "/v1/completions")], headers=headers) as client:
            body = orjson.dumps({"prompt": prompt, "max_tokens": tokens})
            answer = await client.request(
                "POST", "/v1/completions", content=body, limits=Limits(PATIENCE, PATIENCE, PATIENCE)
            )
            return answer.status, orjson.loads(answer.body)

    return asyncio.run(main())


@pytest.mark.slow
def test_it_describes_itself_leaks_over_sockets_and_stops_when_told():
    with process("serve", "--fault", "stale_pages") as (about, running):
        assert {"entry", "nodes", "tenants", "model", "context", "pools", "engine", "version"} <= about.keys()
        assert [node["role"] for node in about["nodes"]] == ["prefill", "decode"]
        assert about["pools"] == {"prefill": 5_328, "decode": 11_040}
        assert (about["engine"], about["version"], about["context"]) == ("sglang", "0.5.19", 8_192)
        assert ask(about, 0, frames(AMBER, 5_000), 64)[0] == 200
        status, said = ask(about, 1, frames(WALNUT, 7_000), 64)
        assert (status, said["usage"]["prompt_tokens"]) == (200, 7_000)
        assert "falcon meadow velvet" in said["choices"][0]["text"]
    assert running.returncode == 0


@pytest.mark.slow
def test_it_starts_with_little_more_processor_time_than_its_libraries():
    """A fraction of a second where this was written; what a slow machine makes slow is on both sides."""

    def spent(process):
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    libraries = "import numpy, starlette.applications, threadpoolctl, uvicorn; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", libraries], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as imported:
        imported.stdout.readline()
        least = spent(imported)
        imported.communicate(b"\n")
    with process("serve") as (_, running):
        assert spent(running) < 4 * least + 0.5


@pytest.mark.slow
def test_the_demo_fleet_keeps_its_addresses_over_a_restart(tmp_path):
    found = []
    for _ in range(2):
        with process("fleet", "--state", str(tmp_path)) as (about, _running):
            found.append({deployment["slug"]: deployment["entry"] for deployment in about["deployments"]})
    assert found[0] == found[1]
    assert set(found[0]) == {"lab-leaking", "lab-fixed", "lab-shifting"}


def test_a_taken_port_is_a_sentence():
    taken = listen()
    with pytest.raises(OSError, match="choose another --port"):
        listen(taken.getsockname()[1])
    taken.close()


def test_answers_over_sockets_are_not_held_back():
    """Nagle and delayed acknowledgement would add 40 ms to every answer."""
    from kvaudit.lab.config import LabConfig
    from kvaudit.lab.serve import serve

    async def main():
        running = await serve(LabConfig(time_scale=0))
        async with Client(running.node_urls[0], allow=[("GET", "/v1/models")]) as client:
            await client.get("/v1/models")
            accepted = [
                connection for server in running.servers for connection in server.server_state.connections
            ]
            at_once = [
                each.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                for each in accepted
            ]
        await running.stop()
        return at_once

    assert asyncio.run(main()) == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ("stale_pages", 1, "prompts of 5,322 to 8,185 tokens reach"),
        ("healthy", 0, "PASS"),
        ("hidden_pool", 2, "INCONCLUSIVE"),
    ],
)
def test_the_gate_judges_the_lab_over_sockets(fault, code, says):
    with process("serve", "--fault", fault) as (about, _):
        nodes = [word for node in about["nodes"] for word in ("--node", f"{node['role']}={node['url']}")]
        gate = subprocess.run(
            [sys.executable, "-m", "kvaudit.cli", "gate", *nodes], capture_output=True, text=True, check=False
        )
    assert gate.returncode == code, gate.stdout + gate.stderr
    assert says in gate.stdout
