"""Serving lab deployments on loopback ports until stopped: one process, one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one BLAS thread, no idle threads

import uvicorn
from starlette.types import ASGIApp

from kvaudit.lab.config import LabConfig
from kvaudit.lab.deployment import Deployment

HOST = "127.0.0.1"


def listen(port: int = 0) -> socket.socket:
    """A listening socket on loopback; OSError with a sentence when the port is taken."""
    # named protocol: asyncio sets TCP_NODELAY only on sockets that say TCP, else 40 ms are added
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except OSError as error:
        sock.close()
        raise OSError(
            f"port {port} on {HOST} cannot be used ({error.strerror}); choose another --port"
        ) from None
    sock.listen(512)
    sock.setblocking(False)
    return sock


def _near(port: int) -> socket.socket:
    """A socket on the wished port, or on any when it is taken."""
    try:
        return listen(port)
    except OSError:
        return listen(0)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:  # the lab stops all its servers itself
        yield


@dataclass
class Running:
    """A deployment that is being served."""

    deployment: Deployment
    entry: str
    node_urls: list[str]
    ports: list[int]
    servers: list[_Server] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def described(self) -> dict[str, Any]:
        return self.deployment.described(self.entry, self.node_urls)

    async def stop(self) -> None:
        for server in self.servers:
            server.should_exit = server.force_exit = True
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.deployment.stop()


async def serve(
    config: LabConfig, faults: Sequence[str] = (), port: int = 0, *, ports: Sequence[int] = ()
) -> Running:
    """Start a deployment: the router on ``port`` (0 = any), each node on a port of its own; ``ports``
    are wished for, router first, and left where somebody else has them. Returns when all of them
    accept connections."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1)
    deployment = Deployment(config, faults)
    wished = [*ports, *[0] * (1 + len(deployment.nodes))][: 1 + len(deployment.nodes)]
    sockets = [listen(port) if port and not number else _near(each) for number, each in enumerate(wished)]
    taken = [sock.getsockname()[1] for sock in sockets]
    for api, number in zip(deployment.apis, taken[1:], strict=True):
        api.port = number
    urls = [f"http://{HOST}:{number}" for number in taken]
    running = Running(deployment, urls[0], urls[1:], taken)
    for (_, application), sock in zip(deployment.applications(), sockets, strict=True):
        running.servers.append(_uvicorn(application))
        running.tasks.append(asyncio.ensure_future(running.servers[-1].serve([sock])))
    while not all(server.started for server in running.servers):
        await asyncio.sleep(0.005)
        for task in running.tasks:
            if task.done():
                task.result()
    return running


def _uvicorn(application: ASGIApp) -> _Server:
    options = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
        ws="none",
    )
    return _Server(options)


async def until_stopped() -> None:
    """Wait for SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
