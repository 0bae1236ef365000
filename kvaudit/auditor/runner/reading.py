"""Reads nodes, with their credentials or without any. Whatever goes wrong becomes a sentence."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import lru_cache

from kvaudit.auditor.checks.contract import Anonymous, NodeSeen
from kvaudit.auditor.engines import fetch
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.runner.replicas import read_others
from kvaudit.auditor.targets import Node
from kvaudit.auditor.transport import Client, Limits, TransportError, redact_text, secrets_of

log = logging.getLogger(__name__)


async def read_node(node: Node, seconds: float = 10.0, connections: int = 1) -> NodeSeen:
    """One node, read over a client of its own, and again over fresh ones up to ``connections``. Whatever goes wrong
    becomes its ``problem``."""
    until = asyncio.get_running_loop().time() + seconds
    try:
        adapters, allow = _adapters(node.engine, node.pointers)
        async with _client(node, allow, seconds=seconds) as client:
            got = await fetch.read_node(
                client, adapters, declared=node.engine not in ("", "auto"), seconds=seconds
            )
        again = await read_others(
            lambda left: _client(node, allow, seconds=left),
            got,
            until=until,
            expected=node.replicas,
            connections=connections,
        )
    except (TransportError, ValueError) as error:
        return NodeSeen(node.name, node.url, node.role, problem=redact_text(str(error)))
    except Exception as error:  # noqa: BLE001
        # An adapter must never raise; if one does, this node is an error and the others go on.
        log_defect(f"reading node {node.name} failed")
        return NodeSeen(node.name, node.url, node.role, problem=broke(f"Reading {node.url}", error))
    return NodeSeen(
        node.name,
        node.url,
        node.role,
        facts=got.facts,
        problem=got.problem,
        evidence=(*got.evidence, *again.evidence),
        transient=got.transient,
        others=again.others,
        connections=again.connections,
        unanswered=redact_text(again.problem),
        replicas=node.replicas,
    )


@lru_cache(maxsize=256)
def _adapters(
    engine: str, pointers: tuple[tuple[str, str], ...]
) -> tuple[tuple[Adapter, ...], frozenset[tuple[str, str]]]:
    """The adapters for a declared engine and their allow-list; ValueError when there is no such engine."""
    adapters = fetch.adapters_for(engine, pointers)
    return adapters, fetch.allowed(adapters)


def _client(
    node: Node, allow: frozenset[tuple[str, str]], *, seconds: float, anonymous: bool = False
) -> Client:
    """A client for this node; ``anonymous`` leaves out headers and client certificate."""
    usual = Limits()
    limits = Limits(
        min(usual.total, seconds),
        min(usual.connect, seconds * 0.6),
        min(usual.read, seconds * 0.6),
        usual.body,
    )
    credentials = node.credentials
    return Client(
        node.url,
        allow=allow,
        headers=() if anonymous else credentials.headers_for(node.url),
        ca_file=credentials.ca_file,
        client_cert="" if anonymous else credentials.client_cert,
        client_key="" if anonymous else credentials.client_key,
        tls_folder=credentials.tls_folder,
        redact=secrets_of(credentials.headers),
        limits=limits,
    )


class Anonymously:
    """Asks allow-listed GETs of a node without any credential; one extra client per node, on demand. ``left``: seconds
    until the run is over; ``seconds``: of one answer."""

    def __init__(
        self,
        nodes: Sequence[Node],
        open_clients: AsyncExitStack,
        left: Callable[[], float],
        *,
        seconds: float,
        concurrency: int,
    ) -> None:
        self._left = left
        self._seconds = seconds
        self._nodes = {node.name: node for node in nodes}
        self._open = open_clients
        self._clients: dict[str, Client] = {}
        self._slots = asyncio.Semaphore(concurrency)

    async def ask(self, name: str, path: str) -> Anonymous:
        try:
            async with asyncio.timeout(max(self._left(), 0.0)), self._slots:
                response = await (await self._client(name)).get(path)
        except TimeoutError:
            return Anonymous(0, problem="The run's time was over before this was answered.")
        except TransportError as error:
            return Anonymous(0, problem=str(error))
        return Anonymous(response.status, response.body, exposed=response.exposed)

    async def _client(self, name: str) -> Client:
        if name not in self._clients:
            node = self._nodes[name]
            _, allow = _adapters(node.engine, node.pointers)
            client = _client(node, allow, seconds=self._seconds, anonymous=True)
            self._clients[name] = await self._open.enter_async_context(client)
        return self._clients[name]


def log_defect(what: str) -> None:
    """The traceback into the log, redacted: an exception may quote what a node answered."""
    log.error("%s\n%s", what, redact_text(traceback.format_exc()))


def broke(what: str, error: Exception) -> str:
    """A sentence for a defect of kvaudit itself; the traceback is in the log."""
    said = redact_text(str(error))[:200]
    return f"{what} broke inside kvaudit ({type(error).__name__}{': ' + said if said else ''})."
