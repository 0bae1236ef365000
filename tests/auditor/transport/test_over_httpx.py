"""httpx over our connections: what the other client refuses is refused here, in the same sentences."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest

from kvaudit.auditor.transport import AddressDenied, Limits, TransportError, egress, over_httpx
from kvaudit.auditor.transport.egress import Policy
from tests import servers
from tests.auditor.transport.test_client import CASES, PATIENT, SILENT, SLOW
from tests.waiting import bounded

T = TypeVar("T")


def against(
    behaviour: servers.Behaviour,
    use: Callable[[httpx.AsyncClient, servers.Server], Awaitable[T]],
    **options: Any,
) -> T:
    async def main() -> T:
        transport = over_httpx.PinnedTransport(**{"limits": PATIENT, **options})
        async with servers.serving(behaviour) as server, over_httpx.client(transport) as client:
            return await use(client, server)

    return asyncio.run(main())


async def get(client: httpx.AsyncClient, server: servers.Server) -> httpx.Response:
    return await client.get(f"{server.url}/x")


@pytest.mark.parametrize("case", CASES)
def test_failures(case: str) -> None:
    behaviour, kind, says = CASES[case]
    limits = {"hanging": SILENT, "dripping": SLOW}.get(case, PATIENT)
    with (
        bounded(limits.total + 30, f"a request of at most {limits.total:g} s"),
        pytest.raises(TransportError) as caught,
    ):
        against(behaviour, get, limits=limits)
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert "token=abc" not in str(caught.value)


def test_what_is_sent() -> None:
    async def post(client: httpx.AsyncClient, server: servers.Server) -> servers.Request:
        headers = {"Content-Type": "application/json", "X-Signature": "s"}
        as_given = {"target": b"/x?a=%7c|b"}
        await client.post(server.url, content=b'{"a":1}', headers=headers, extensions=as_given)
        return server.requests[0]

    sent = against(servers.html(), post)
    assert (sent.method, sent.path, sent.body) == ("POST", "/x?a=%7c|b", b'{"a":1}')
    assert (sent.headers["content-type"], sent.headers["x-signature"]) == ("application/json", "s")
    assert (sent.headers["accept-encoding"], sent.headers["user-agent"]) == ("gzip", "kvaudit")
    assert sent.headers["content-length"] == "7"


def test_a_packed_answer_comes_unpacked_with_its_own_headers() -> None:
    headers = (("Content-Encoding", "gzip"), ("ETag", '"7"'))
    reply = servers.Recorded(body=gzip.compress(b'{"a":1}'), headers=headers)
    answer = against(servers.replay({"/x": reply}), get)
    assert (answer.json(), answer.headers["etag"]) == ({"a": 1}, '"7"')


def test_one_connection_serves_several_requests() -> None:
    async def twice(client: httpx.AsyncClient, server: servers.Server) -> tuple[int, int]:
        for _ in range(2):
            await client.get(f"{server.url}/x")
        return len(server.requests), server.connections

    assert against(servers.replay({"/x": servers.Recorded(body=b"{}")}), twice) == (2, 1)


def test_a_closed_door_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "_installed", Policy(guarded=True))

    async def refused(client: httpx.AsyncClient, server: servers.Server) -> int:
        with pytest.raises(AddressDenied, match="EGRESS_ALLOW"):
            await get(client, server)
        return server.connections

    assert against(servers.html(), refused) == 0


def test_metadata_addresses_are_refused_behind_a_name() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["169.254.169.254"]

    async def named(client: httpx.AsyncClient, server: servers.Server) -> httpx.Response:
        return await client.get("http://hooks.example.org/x")

    with pytest.raises(AddressDenied, match=r"169\.254"):
        against(servers.html(), named, resolve=resolve)


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{servers.closed_port()}")
    (tmp_path / "netrc").write_text("default login me password secret")
    monkeypatch.setitem(os.environ, "NETRC", str(tmp_path / "netrc"))

    async def sent(client: httpx.AsyncClient, server: servers.Server) -> servers.Request:
        await get(client, server)
        return server.requests[0]

    assert "authorization" not in against(servers.html(), sent).headers


def test_a_secret_in_what_a_receiver_wrote_is_not_repeated() -> None:
    with pytest.raises(TransportError) as caught:
        against(
            servers.redirecting("http://h/top-secret-word"), get, redact=["top-secret-word"], limits=Limits()
        )
    assert "top-secret-word" not in str(caught.value)
