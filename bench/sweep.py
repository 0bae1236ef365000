"""A passive sweep of many slow nodes from one worker, beside a bare asyncio + httpx loop.

    .venv/bin/python bench/sweep.py [--nodes 1000] [--delay 0.2] [--concurrency 64 1000]

Every node is a listener of its own in another process and answers after ``--delay`` seconds like an
SGLang node. The bare loop sends the same requests (one client per node, no TLS context, no parsing).
The promises: at most 1.3 x its wall time, memory below 300 MB; with results written to the database
at most 1.6 x (``sweep`` takes a ``sink`` for that, called with every event of the runner).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kvaudit.auditor import runner  # noqa: E402
from kvaudit.auditor.targets import Node, Target  # noqa: E402
from tests import servers  # noqa: E402

CHECKS = ("pool", "version")
PROMISE, PROMISE_WRITTEN, PROMISE_MEMORY = 1.3, 1.6, 300
PER_DEPLOYMENT = 4
PAYLOAD = "sglang/server_info-prefill-0.5.19.json"

Sink = Callable[[runner.Event], None]


def more_files() -> None:
    """A thousand listeners need more descriptors than the usual soft limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


def serve(count: int, delay: float, pipe: Any) -> None:
    """Child process: ``count`` nodes on ports of their own, until the pipe closes. The answers are
    prepared bytes, so that the servers take as little as possible of the machine."""
    more_files()

    class Answering(asyncio.Protocol):
        routes: dict[bytes, bytes] = {}

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            path = data.split(b" ", 2)[1]
            asyncio.get_running_loop().call_later(delay, self.answer, path)

        def answer(self, path: bytes) -> None:
            if not self.transport.is_closing():
                self.transport.write(self.routes.get(path, self.routes[b""]))

    async def main() -> None:
        for path, reply in prepared().items():
            head = f"HTTP/1.1 {reply.status} X\r\nContent-Type: {reply.content_type}\r\n"
            head += f"Content-Length: {len(reply.body)}\r\n\r\n"
            Answering.routes[path.encode()] = head.encode() + reply.body
        loop = asyncio.get_running_loop()
        listeners = [await loop.create_server(Answering, "127.0.0.1", 0, backlog=64) for _ in range(count)]
        pipe.send([listener.sockets[0].getsockname()[1] for listener in listeners])
        await loop.run_in_executor(None, pipe.recv)

    asyncio.run(main())


def prepared() -> dict[str, servers.Recorded]:
    """Path -> answer of an SGLang node; "" is what every other path gets."""
    info = json.loads(servers.payload(PAYLOAD))
    card = {"id": "glm-5.3", "object": "model", "owned_by": "sglang", "max_model_len": info["context_length"]}
    return {
        "/server_info": servers.answer(info),
        "/v1/models": servers.answer({"object": "list", "data": [card]}),
        "": servers.answer({"detail": "Not Found"}, 404),
    }


async def sweep(urls: list[str], concurrency: int, sink: Sink) -> None:
    """The runner over deployments of ``PER_DEPLOYMENT`` nodes, as many at once as ``concurrency``
    nodes need; each event goes to ``sink`` as it happens."""
    slots = asyncio.Semaphore(max(1, concurrency // PER_DEPLOYMENT))
    budget = runner.Budget(seconds=600)

    async def one(first: int) -> None:
        chosen = enumerate(urls[first : first + PER_DEPLOYMENT], first)
        target = Target(f"d{first}", tuple(Node(f"n{at}", url) for at, url in chosen))
        async with slots:
            async for event in runner.run(target, CHECKS, budget=budget):
                sink(event)

    await asyncio.gather(*(one(first) for first in range(0, len(urls), PER_DEPLOYMENT)))


async def bare(urls: list[str], paths: list[str], concurrency: int) -> None:
    """The same requests with httpx and nothing else."""
    import httpx

    slots = asyncio.Semaphore(concurrency)

    async def one(url: str) -> None:
        async with slots, httpx.AsyncClient(trust_env=False, verify=False, timeout=10) as client:
            for path in paths:
                (await client.get(url + path)).content  # noqa: B018

    await asyncio.gather(*(one(url) for url in urls))


def asked_paths() -> list[str]:
    """The paths that one audit of such a node asks, in order."""
    with servers.background(servers.replay({**prepared(), "": servers.Recorded(404)})) as server:
        asyncio.run(sweep([server.url], 1, lambda event: None))
        return [request.path for request in server.requests]


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(work: Any) -> float:
    began = time.perf_counter()
    asyncio.run(work)
    return time.perf_counter() - began


def alone(name: str, *arguments: Any) -> tuple[float, float, int]:
    """Run one competitor in a fresh process: (seconds, peak MB, nodes read)."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_competitor, (name, *arguments))


def _competitor(name: str, urls: list[str], paths: list[str], concurrency: int) -> tuple[float, float, int]:
    more_files()
    read = 0

    def count(event: runner.Event) -> None:
        nonlocal read
        read += isinstance(event, runner.NodeRead) and event.node.facts is not None

    work = sweep(urls, concurrency, count) if name == "kvaudit" else bare(urls, paths, concurrency)
    return timed(work), peak_megabytes(), read


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.2)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[64, 1000])
    given = parser.parse_args()
    more_files()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(
        target=serve, args=(given.nodes, given.delay, theirs), daemon=True
    )
    child.start()
    kept = True
    try:
        urls = [f"http://127.0.0.1:{port}" for port in ours.recv()]
        paths = asked_paths()
        print(f"{len(urls)} nodes, {given.delay} s an answer, {len(paths)} reads each")
        for concurrency in given.concurrency:
            other, other_memory, _ = alone("bare", urls, paths, concurrency)
            mine, memory, read = alone("kvaudit", urls, paths, concurrency)
            ratio = mine / other
            kept = kept and ratio <= PROMISE and memory < PROMISE_MEMORY and read == len(urls)
            print(
                f"concurrency {concurrency:5}: kvaudit {mine:6.2f} s {memory:4.0f} MB, {read} read; "
                f"bare httpx {other:6.2f} s {other_memory:4.0f} MB; ratio {ratio:.2f}"
            )
    finally:
        ours.send(None)
        child.join(5)
    print(f"promises ({PROMISE} x, {PROMISE_MEMORY} MB): {'kept' if kept else 'BROKEN'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
