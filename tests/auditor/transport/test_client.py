"""The client against servers that misbehave: each failure has its own type and its own sentence."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme

from kvaudit.auditor import transport
from kvaudit.auditor.transport import Client, Limits, TransportError
from tests import servers
from tests.waiting import bounded

T = TypeVar("T")
ALLOW = frozenset({("GET", "/x"), ("POST", "/x"), ("GET", "/y?full=1")})
PATIENT = Limits(total=30, connect=10, read=20)
# One limit is short and the others are far: which of them ends it must not depend on the machine.
SILENT = Limits(total=30, connect=30, read=0.3)
SLOW = Limits(total=1.0, connect=30, read=30)


def against(behaviour: servers.Behaviour, use: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Run ``use(client)`` against one behaviour."""

    async def main() -> T:
        async with (
            servers.serving(behaviour) as server,
            Client(server.url, **{"allow": ALLOW, "limits": PATIENT, **options}) as client,
        ):
            return await use(client)

    return asyncio.run(main())


def get(client: Client) -> Awaitable[transport.Response]:
    return client.get("/x")


CASES: dict[str, tuple[servers.Behaviour, type[TransportError], str]] = {
    "hanging": (servers.hanging(), transport.SilentServer, "sent nothing for 0.3 s"),
    "dripping": (servers.dripping(), transport.DeadlineExceeded, "did not finish its answer within 1 s"),
    "endless": (servers.endless(), transport.BodyTooLarge, "sent more than 8 MiB"),
    "bomb": (servers.gzip_bomb(64), transport.BodyTooLarge, "unpacks to more than 8 MiB"),
    "redirect": (
        servers.redirecting("http://169.254.169.254/latest?token=abc"),
        transport.Redirected,
        "302 and wanted to send us to http://169.254.169.254/latest: redirects are never followed",
    ),
    "redirect nowhere": (servers.redirecting("", 307), transport.Redirected, "nowhere named"),
    "garbage": (servers.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), transport.NotHTTP, "did not answer in HTTP"),
    "empty": (servers.raw(b""), transport.ConnectionDropped, "closed the connection before"),
    "half a head": (
        servers.raw(b"HTTP/1.1 200 OK\r\nConte"),
        transport.ConnectionDropped,
        "closed the connection",
    ),
    "half a body": (
        servers.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
        transport.ConnectionDropped,
        "closed the connection",
    ),
    "endless head": (
        servers.raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000),
        transport.NotHTTP,
        "not answer in HTTP",
    ),
    "bad length": (
        servers.raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
        transport.NotHTTP,
        "did not answer in HTTP",
    ),
    "brotli": (
        servers.raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx"),
        transport.BadEncoding,
        "not offered",
    ),
}


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


def test_each_failure_has_a_sentence_of_its_own() -> None:
    sentences = [says for _, _, says in CASES.values()]
    assert len({kind for _, kind, _ in CASES.values()}) >= 7
    assert all(sentences)


def test_refused() -> None:
    async def main() -> None:
        async with Client(f"http://127.0.0.1:{servers.closed_port()}", allow=ALLOW) as client:
            await client.get("/x")

    with pytest.raises(transport.ConnectionRefused, match="nothing listens there") as caught:
        asyncio.run(main())
    assert caught.value.transient


def test_path_outside_the_allow_list_opens_no_socket() -> None:
    async def main() -> int:
        async with servers.serving(servers.html()) as server, Client(server.url, allow=ALLOW) as client:
            for method, path in [
                ("GET", "/terminate"),
                ("GET", "/x/"),
                ("GET", "/x?a=1"),
                ("DELETE", "/x"),
                ("GET", "/y"),
            ]:
                with pytest.raises(transport.PathNotAllowed, match="not on the allow-list"):
                    await client.request(method, path)
            return server.connections

    assert asyncio.run(main()) == 0


def test_answer_is_whole_and_counted() -> None:
    body = servers.payload("sglang/v1_loads-dp2-0.5.22.json")
    response = against(servers.replay({"/x": servers.Recorded(body=body)}), get)
    assert (response.status, response.body, response.content_type) == (200, body, "application/json")
    assert 0 < response.first_byte <= response.seconds
    evidence = response.evidence()
    assert evidence.sha256 == hashlib.sha256(body).hexdigest()
    assert evidence.source.startswith("GET http://127.0.0.1:")
    assert evidence.source.endswith("/x")


def test_statuses_are_answers() -> None:
    for status in (204, 304, 400, 401, 404, 429, 500, 503):
        assert against(servers.replay({"/x": servers.Recorded(status, b"")}), get).status == status


def test_gzip_is_decoded() -> None:
    reply = servers.Recorded(body=gzip.compress(b'{"a":1}'), headers=(("Content-Encoding", "gzip"),))
    assert against(servers.replay({"/x": reply}), get).body == b'{"a":1}'


def test_what_is_sent() -> None:
    async def main() -> servers.Request:
        async with (
            servers.serving(servers.html()) as server,
            Client(
                server.url + "/pre", allow=ALLOW, headers=[("Authorization", "Bearer k-123456")]
            ) as client,
        ):
            await client.request("POST", "/x", content=b'{"a":1}', headers=[("X-Tenant", "a")])
            return server.requests[0]

    sent = asyncio.run(main())
    assert (sent.method, sent.path, sent.body) == ("POST", "/pre/x", b'{"a":1}')
    assert sent.headers["authorization"] == "Bearer k-123456"
    assert sent.headers["x-tenant"] == "a"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["accept-encoding"] == "gzip"


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{servers.closed_port()}")
    assert against(servers.html(), get).status == 200


def test_cap_may_be_raised_for_one_request() -> None:
    large = servers.replay({"/x": servers.Recorded(body=b"x" * (9 * 2**20))})
    limits = Limits(total=30, body=10 * 2**20)
    assert len(against(large, lambda client: client.get("/x", limits=limits)).body) == 9 * 2**20
    with pytest.raises(transport.BodyTooLarge):
        against(large, get, limits=PATIENT)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("Authorization", "Bearer top-secret\n", "line break"),
        ("Authorization", "Bearer top-secret\r\nX: y", "line break"),
        ("Authorization", "top-secret\x00", "control character"),
        ("Authorization", "top-secret-\N{EURO SIGN}", "outside ASCII"),
        ("X Key", "top-secret", "header name"),
        ("X\r\nY", "top-secret", "header name"),
        ("", "top-secret", "header name"),
        ("Host", "top-secret", "set by kvaudit itself"),
    ],
)
def test_bad_headers_are_refused_without_repeating_the_value(name: str, value: str, says: str) -> None:
    with pytest.raises(transport.BadHeader, match=says) as caught:
        Client("http://127.0.0.1:1", allow=ALLOW, headers=[(name, value)])
    assert "top-secret" not in str(caught.value)


def test_own_key_is_redacted_in_bodies_headers_and_errors() -> None:
    key = "k-9876-zyxw"

    async def echo(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        value = request.headers["authorization"]
        body = f'{{"you_sent": "{value}"}}'.encode()
        head = f"HTTP/1.1 200 OK\r\nServer: {value}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    async def bounce(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        await servers.redirecting(f"http://elsewhere/{key}")(request, writer)

    headers = [("Authorization", f"Bearer {key}")]
    response = against(echo, get, headers=headers)
    assert key.encode() not in response.body
    assert key not in str(response.headers)
    assert response.exposed
    with pytest.raises(transport.Redirected) as caught:
        against(bounce, get, headers=headers)
    assert key not in str(caught.value)


def test_connection_is_reused_and_closed() -> None:
    async def main() -> int:
        async with servers.serving(servers.html()) as server:
            async with Client(server.url, allow=ALLOW) as client:
                for _ in range(3):
                    await client.get("/x")
            return server.connections

    assert asyncio.run(main()) == 1


# Streams


def chunked(*data: str) -> tuple[bytes, ...]:
    return tuple(f"data: {item}\n\n".encode() for item in data)


TOKENS = ('{"choices":[{"delta":{"role":"assistant"}}]}', '{"choices":[{"delta":{"content":"hi"}}]}')


def test_stream_with_done() -> None:
    async def use(client: Client) -> None:
        async with client.stream("POST", "/x", content=b"{}") as answer:
            assert answer.is_event_stream
            events = [event async for event in answer.events()]
        assert [event.done for event in events] == [False, False, True]
        assert answer.done
        assert not answer.error
        assert answer.first_event is not None
        assert answer.first_token is not None
        assert 0 < answer.first_event <= answer.first_token

    against(servers.event_stream(*chunked(*TOKENS, "[DONE]")), use)


def test_stream_that_ends_without_done_is_truncated() -> None:
    async def use(client: Client) -> None:
        async with client.stream("POST", "/x", content=b"{}") as answer:
            events = [event async for event in answer.events()]
        assert len(events) == 2
        assert not answer.done

    against(servers.event_stream(*chunked(*TOKENS)), use)


def test_stream_that_breaks_off_delivers_what_came_and_then_raises() -> None:
    seen: list[str] = []

    async def use(client: Client) -> None:
        async with client.stream("POST", "/x", content=b"{}") as answer:
            async for event in answer.events():
                seen.append(event.text)

    with pytest.raises(transport.ConnectionDropped):
        against(servers.event_stream(*chunked(*TOKENS), close=False), use)
    assert seen == ["", "hi"]


def test_error_frame_inside_a_200() -> None:
    async def use(client: Client) -> None:
        async with client.stream("POST", "/x", content=b"{}") as answer:
            events = [event async for event in answer.events()]
        assert answer.status == 200
        assert answer.error == "The input is too long"
        assert answer.first_token is None
        assert len(events) == 2

    frames = chunked('{"error":{"message":"The input is too long","code":400}}', "[DONE]")
    against(servers.event_stream(*frames), use)


def test_secrets_in_events_are_redacted() -> None:
    async def use(client: Client) -> None:
        async with client.stream("POST", "/x", content=b"{}") as answer:
            events = [event async for event in answer.events()]
        assert "abcdef123456" not in "".join(event.data for event in events)

    against(servers.event_stream(*chunked('{"error":{"api_key":"abcdef123456"}}')), use)


def test_leaving_a_stream_early_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def behave(request: servers.Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        try:
            while True:
                writer.write(b": keep-alive\n\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    async def use(client: Client) -> None:
        async with client.stream("POST", "/x", content=b"{}") as answer:
            async for _ in answer.events():
                break
        await asyncio.wait_for(closed.wait(), 60)

    against(behave, use)


def test_errors_of_the_caller_inside_a_stream_stay_its_own() -> None:
    async def use(client: Client) -> None:
        async with client.stream("GET", "/x"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        against(servers.html(), use)


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, *names: str, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    if wants_client:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def over_tls(context: ssl.SSLContext, **options: Any) -> transport.Response:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def main() -> transport.Response:
        async with (
            servers.serving(servers.html(), tls=context) as server,
            Client(f"https://node.example:{server.port}", allow=ALLOW, resolve=resolve, **options) as client,
        ):
            return await client.get("/x")

    return asyncio.run(main())


def test_tls_with_the_right_ca(authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    response = over_tls(server_context(authority, "node.example"), ca_file=str(tmp_path / "ca.pem"))
    assert response.status == 200


def test_tls_without_the_ca(authority: trustme.CA) -> None:
    with pytest.raises(transport.TLSFailed, match="not trusted"):
        over_tls(server_context(authority, "node.example"))


def test_tls_with_another_name(authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with pytest.raises(transport.TLSFailed, match="not trusted"):
        over_tls(server_context(authority, "other.example"), ca_file=str(tmp_path / "ca.pem"))


def test_client_certificate(authority: trustme.CA, tmp_path: Path) -> None:
    ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("auditor@example.org").private_key_and_cert_chain_pem.write_to_path(str(own))
    context = server_context(authority, "node.example", wants_client=True)
    assert over_tls(context, ca_file=str(ca), client_cert=str(own)).status == 200
    with pytest.raises(TransportError, match=r"wants? a client certificate"):
        over_tls(context, ca_file=str(ca))


def test_https_on_a_plain_port_says_so() -> None:
    async def main() -> None:
        async with (
            servers.serving(servers.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server,
            Client(server.url.replace("http:", "https:"), allow=ALLOW, limits=Limits(connect=1)) as client,
        ):
            await client.get("/x")

    with pytest.raises(TransportError) as caught:
        asyncio.run(main())
    assert isinstance(caught.value, transport.TLSFailed | transport.ConnectTimedOut)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_unusable_ca_file(tmp_path: Path, content: str | None) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_text(content)

    async def main() -> None:
        async with Client("https://127.0.0.1:1", allow=ALLOW, ca_file=str(ca)) as client:
            await client.get("/x")

    with pytest.raises(transport.TLSFailed, match=r"ca\.pem"):
        asyncio.run(main())
