"""A tiny session service for tests: slots that are reused, two accounts, and faults on demand.

    async with serving_sessions("not_reset") as server:
        ... server.url, server.requests

Over real loopback sockets with kept-alive connections, since one fault lives in a connection. Slots are
handed out last released first. Keys are ``key-a`` and ``key-b``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

FAULTS = (
    "not_reset",  # a released slot keeps its content, and its next owner reads it
    "stale_readable",  # an old handle still reads whatever the slot holds now
    "stale_writable",  # an old handle still writes into it
    "late_lands",  # a slow save writes into the slot although it has a new owner
    "shifted",  # a call that is cut off leaves its reply in the backend connection
    "oversize",  # one more than the largest size is accepted
    "leak",  # in_use never comes down
    "swallow",  # written data is not shown (a control of the check, no leak)
)
KEYS = {"key-a": "a", "key-b": "b"}
FIELDS = ("name", "item", "note", "chat")


@dataclass
class Slot:
    generation: int = 0
    owner: str = ""
    content: dict[str, str] = field(default_factory=dict)


@dataclass
class SessionServer:
    """State of the service. ``save_seconds``: how long a slow save takes."""

    faults: frozenset[str] = frozenset()
    capacity: int = 20
    largest: int = 4
    save_seconds: float = 0.04
    url: str = ""
    slots: list[Slot] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    sizes: dict[int, list[int]] = field(default_factory=dict)
    leaked: int = 0
    backend: list[str] = field(default_factory=list)
    cut_off: bool = False  # whoever asks for an echo will leave before it comes
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    open_connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = self.faults - set(FAULTS)
        assert not unknown, unknown
        self.slots = [Slot() for _ in range(self.capacity)]
        self.free = list(range(self.capacity))

    # -- life of a session -------------------------------------------------------------------------

    def claim(self, account: str, size: int) -> tuple[int, Any]:
        if size > self.largest and "oversize" not in self.faults:
            return 422, {"error": f"at most {self.largest} slots"}
        if size > len(self.free):
            return 409, {"error": "full"}
        taken = [self.free.pop() for _ in range(size)]
        slot = self.slots[taken[0]]
        slot.generation += 1
        slot.owner = account
        if "not_reset" not in self.faults:
            slot.content = {}
        self.sizes[taken[0]] = taken
        return 201, {"id": f"{taken[0]}/{slot.generation}", "slot": taken[0]}

    def release(self, number: int) -> None:
        self.slots[number].owner = ""
        back = self.sizes.pop(number, [])
        if "leak" in self.faults:
            self.leaked += len(back)
        self.free += reversed(back)

    def session(self, handle: str, account: str, *, writing: bool = False) -> tuple[int, Slot] | None:
        number, _, generation = handle.partition("/")
        if not number.isdigit() or int(number) >= self.capacity:
            return None
        slot = self.slots[int(number)]
        if slot.owner == account and str(slot.generation) == generation:
            return int(number), slot
        stale = "stale_writable" if writing else "stale_readable"
        return (int(number), slot) if stale in self.faults else None

    async def answer(self, method: str, path: str, account: str, body: Any) -> tuple[int, Any]:
        if path == "/pool":
            used = self.capacity - len(self.free) + self.leaked
            return 200, {"pool": {"size": self.capacity, "used": used, "max": self.largest}}
        if (method, path) == ("POST", "/sessions"):
            return self.claim(account, int(body.get("size", 1)))
        if (method, path) == ("POST", "/echo"):
            return await self.echo(body["nonce"])
        parts = path.split("/")
        if len(parts) < 3 or parts[1] != "sessions":
            return 404, {"error": "no such path"}
        handle, rest = unquote(parts[2]), "/".join(parts[3:])
        writing = method in ("PUT", "POST")
        found = self.session(handle, account, writing=writing)
        if found is None:
            return 410, {"error": "this session has ended"}
        number, slot = found
        if method == "DELETE":
            self.release(number)
            return 200, {}
        if rest == "oversize":
            self.release(number)
            return 413, {"error": "too large; the session was ended"}
        if rest == "save":
            generation = slot.generation
            await asyncio.sleep(self.save_seconds)
            if slot.generation != generation and "late_lands" not in self.faults:
                return 410, {"error": "this session has ended"}
            slot.content["note"] = body["text"]
            return 200, {}
        if method == "PUT":
            if "swallow" not in self.faults:
                slot.content.update({name: str(body[name]) for name in FIELDS if name in body})
            return 200, {}
        return 200, {"slot": number, "content": slot.content}

    async def echo(self, nonce: str) -> tuple[int, Any]:
        """Over one shared backend connection: a command is sent, then its reply is read."""
        self.backend.append(nonce)
        try:
            await (asyncio.Event().wait() if self.cut_off else asyncio.sleep(0.004))
        except asyncio.CancelledError:
            if "shifted" not in self.faults:
                self.backend.remove(nonce)  # a careful pool throws the connection away
            raise
        return 200, {"said": self.backend.pop(0)}

    def drop_idle(self) -> None:
        """What a heartbeat does: sessions of A that were left end."""
        for number in [number for number in self.sizes if self.slots[number].owner == "a"]:
            self.release(number)

    # -- HTTP ----------------------------------------------------------------------------------------

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open_connections[task] = writer
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self.open_connections[task]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        account = KEYS.get(headers.get("authorization", "").removeprefix("Bearer "), "")
        self.requests.append((account, method, path))
        if not account:
            status, document = 401, {"error": "who are you"}
        else:
            work = asyncio.ensure_future(self.answer(method, path, account, json.loads(raw or b"{}")))
            gone = asyncio.ensure_future(reader.read(1)) if path == "/echo" else None
            if gone is not None:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not work.done():
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
                    return False
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
            status, document = await work
        payload = json.dumps(document).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
        )
        writer.write(payload)
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def serving_sessions(*faults: str, **options: Any) -> AsyncIterator[SessionServer]:
    """The service on a free loopback port."""
    service = SessionServer(frozenset(faults), **options)
    server = await asyncio.start_server(service.connection, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        for writer in service.open_connections.values():
            writer.close()
        while service.open_connections:
            await asyncio.wait(list(service.open_connections), timeout=1)


FLEET_FILE = """\
schema: kvaudit.fleet/1
deployments:
  - slug: game
    engine: generic
    nodes: [{{url: "{url}/pool", pointers: {{capacity: /pool/size, max_request: /pool/max}}}}]
    tenants: [{{name: a, key_env: KEY_A}}, {{name: b, key_env: KEY_B}}]
    session:
      url: "{url}"
      pool: {{path: /pool, capacity: /pool/size, in_use: /pool/used, max_request: /pool/max}}
      wait: 1s
      steps:
        claim: {{method: POST, path: /sessions, body: {{size: "{{{{size}}}}"}}, capture: {{id: /id, slot: /slot}}}}
        seed:
          - method: PUT
            path: "/sessions/{{{{id}}}}"
            body: {{name: "{{{{marker}}}}", item: "{{{{marker}}}}", note: "{{{{marker}}}}", chat: "{{{{marker}}}}"}}
        read: {{method: GET, path: "/sessions/{{{{id}}}}"}}
        write: {{method: PUT, path: "/sessions/{{{{id}}}}", body: {{name: "{{{{marker}}}}"}}}}
        end: {{method: DELETE, path: "/sessions/{{{{id}}}}"}}
        reject: {{method: POST, path: "/sessions/{{{{id}}}}/oversize"}}
        save: {{method: POST, path: "/sessions/{{{{id}}}}/save", body: {{text: "{{{{marker}}}}"}}}}
        echo: {{method: POST, path: /echo, body: {{nonce: "{{{{nonce}}}}"}}}}
"""
