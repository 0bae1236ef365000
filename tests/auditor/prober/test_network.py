"""Requests as a tenant over real sockets, against servers that misbehave and answers that were recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Reply, Stop
from kvaudit.auditor.engines.completion import Dialect, Mode
from kvaudit.auditor.prober import CannotAsk, NetworkProber, TokenUsage
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.prompts import Tail
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.transport import Client
from tests import servers

ALLOW = frozenset(
    {("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("POST", "/tokenize"), ("GET", "/health")}
)
LIMITS = Limits(2_048, 2_048, 4_096, 16)
PROMPT = Prompt(40, b"1,2,3")
FRAME = b'data: {"model":"m","choices":[{"text":"wal","finish_reason":null}]}\n\n'
LAST = b'data: {"model":"m","choices":[{"text":"nut","finish_reason":"stop"}],"usage":{"prompt_tokens":40,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
LONG = b'data: {"error":{"message":"This model\'s maximum context length is 2048 tokens.","code":400}}\n\n'


def prober(url: str, **more: Any) -> NetworkProber:
    more.setdefault("limits", LIMITS)
    tenants = more.pop("tenants", ("A",))
    return NetworkProber(
        wires={
            name: Client(url, allow=ALLOW, headers=[("Authorization", f"Bearer sk-{name}")])
            for name in tenants
        },
        dialect=Dialect(),
        model="m",
        mode=more.pop("mode", Mode.COMPLETION_IDS),
        draw=seeded(3),
        **more,
    )


def with_server(
    behaviour: servers.Behaviour, use: Callable[[NetworkProber, servers.Server], Any], **more: Any
) -> Any:
    async def main() -> Any:
        async with servers.serving(behaviour) as server:
            asking = prober(server.url, **more)
            try:
                return await use(asking, server)
            finally:
                await asking.aclose()

    return asyncio.run(main())


def asked(behaviour: servers.Behaviour, seconds: float = 20.0, **more: Any) -> Reply:
    async def once(asking: NetworkProber, server: servers.Server) -> Reply:
        return await asking.ask("A", PROMPT, max_tokens=8, seconds=seconds, **more)

    reply: Reply = with_server(behaviour, once)
    return reply


def reply_with(body: bytes, status: int = 200, content_type: str = "application/json") -> servers.Behaviour:
    return servers.replay({"/v1/completions": servers.Recorded(status, body, content_type)})


@pytest.mark.parametrize(
    ("behaviour", "outcome", "status"),
    [
        (servers.event_stream(FRAME, LAST, DONE), Outcome.ANSWERED, 200),
        (
            servers.event_stream(b"data:\n\n", FRAME, b"data: \n\n", LAST, DONE),
            Outcome.ANSWERED,
            200,
        ),  # keep-alives
        (servers.event_stream(FRAME, LAST), Outcome.BROKEN, 200),  # no [DONE]
        (servers.event_stream(FRAME, close=False), Outcome.BROKEN, 200),
        (servers.event_stream(LONG, DONE), Outcome.REFUSED, 200),
        (servers.event_stream(LONG), Outcome.REFUSED, 200),
        (servers.event_stream(FRAME, b"data: {broken\n\n", DONE), Outcome.BROKEN, 200),
        (servers.event_stream(b'data: {"error":"worker died"}\n\n', DONE), Outcome.UNANSWERED, 200),
        (servers.hanging(), Outcome.TIMED_OUT, 0),
        (servers.dripping(), Outcome.TIMED_OUT, 0),
        (servers.endless(), Outcome.BROKEN, 200),
        (servers.gzip_bomb(64), Outcome.BROKEN, 200),
        (servers.raw(b"SSH-2.0\r\n\r\n"), Outcome.BROKEN, 0),
        (servers.raw(b""), Outcome.BROKEN, 0),
        (servers.redirecting("http://127.0.0.1:1/"), Outcome.BROKEN, 0),
        (servers.html(), Outcome.BROKEN, 200),
        (servers.html(502), Outcome.FAILED, 502),
        (servers.html(404), Outcome.UNANSWERED, 404),
        (reply_with(b"<html>413 Request Entity Too Large</html>", 413, "text/html"), Outcome.TOO_LARGE, 413),
        (reply_with(b'{"error":"slow down"}', 429), Outcome.BUSY, 429),
        (reply_with(b'{"error":"Unauthorized"}', 401), Outcome.DENIED, 401),
        (reply_with(b'{"model":"other","choices":[{"text":"a"}]}'), Outcome.STRANGER, 200),
        (reply_with(b"[]"), Outcome.BROKEN, 200),
        (reply_with(b""), Outcome.BROKEN, 200),
    ],
)
def test_outcomes(behaviour: servers.Behaviour, outcome: Outcome, status: int) -> None:
    # Only what never ends uses its time up: a slow machine must not turn an answer into a time-out. Status 0: whether
    # the head of what drips comes within that second is the machine's doing.
    reply = asked(behaviour, 1.0 if outcome is Outcome.TIMED_OUT else 20.0)
    assert reply.outcome is outcome, reply.error
    assert reply.valid is outcome.valid
    if status:
        assert reply.status == status


def test_a_stream_is_joined_and_its_first_token_timed() -> None:
    reply = asked(servers.event_stream(FRAME, LAST, DONE))
    assert (reply.text, reply.prompt_tokens, reply.finish) == ("walnut", 40, "stop")
    assert reply.first_token is not None
    assert 0 < reply.first_token <= reply.seconds


def test_a_request_is_cancelled_on_purpose_and_not_called_late() -> None:
    assert asked(servers.hanging(), seconds=20.0, cancel_after=0.05).outcome is Outcome.CANCELLED


def test_the_error_of_an_answer_is_kept_short_and_redacted() -> None:
    body = orjson.dumps({"error": {"message": "key sk-A was " + "x" * 2_000}})
    reply = asked(reply_with(body, 400))
    assert len(reply.error) <= 500
    assert "sk-A" not in reply.error


def test_a_refused_prompt_costs_nothing_and_an_answered_one_its_length() -> None:
    async def use(asking: NetworkProber, server: servers.Server) -> tuple[int, int]:
        await asking.ask("A", PROMPT, max_tokens=8, seconds=20.0)
        return asking.spent.requests, asking.spent.prompt_tokens

    assert with_server(servers.event_stream(LONG, DONE), use) == (1, 0)
    assert with_server(servers.event_stream(FRAME, LAST, DONE), use) == (1, 40)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stopped": lambda: "Active checks are paused."}, "paused"),
        ({"spent": TokenUsage(ceiling=39)}, "budget"),
        ({"spent": TokenUsage(left=39)}, "daily ceiling"),
        ({"limits": Limits(40, 2_048, 64, 16), "prompt": Prompt(1_100, b"1")}, "consent"),
    ],
)
def test_what_may_not_be_sent_reaches_no_socket(more: dict[str, Any], said: str) -> None:
    prompt = more.pop("prompt", PROMPT)

    async def use(asking: NetworkProber, server: servers.Server) -> int:
        with pytest.raises(Stop, match=said):
            await asking.ask("A", prompt, max_tokens=8)
        return server.connections

    assert with_server(servers.event_stream(FRAME, LAST, DONE), use, **more) == 0


def test_a_pause_takes_effect_before_the_next_request() -> None:
    paused: list[str] = []

    async def use(asking: NetworkProber, server: servers.Server) -> int:
        await asking.ask("A", PROMPT, max_tokens=8, seconds=20.0)
        paused.append("Paused by the fleet's owner.")
        with pytest.raises(Stop, match="fleet's owner"):
            await asking.ask("A", PROMPT, max_tokens=8, seconds=20.0)
        with pytest.raises(Stop, match="fleet's owner"):
            await asking.healthy()
        return len(server.requests)

    stopped = lambda: paused[0] if paused else ""  # noqa: E731
    assert with_server(servers.event_stream(FRAME, LAST, DONE), use, stopped=stopped) == 1


def counting(added: int = 0, ids: bool = True, wrong: int = 0, fails: int = 0) -> servers.Behaviour:
    """A server that counts bytes as tokens and adds ``added``; ``wrong`` more per 100 tokens. The first
    ``fails`` completions answer 503."""
    failed: list[int] = []

    async def behave(request: servers.Request, writer: Any) -> None:
        body = orjson.loads(request.body or b"{}")
        prompt = body.get("prompt") or (body.get("messages") or [{}])[0].get("content", "")
        if request.path == "/tokenize":
            reply = servers.answer({"tokens": list(prompt.encode())})
        elif request.path == "/health":
            reply = servers.Recorded(200)
        elif len(failed) < fails:
            failed.append(1)
            reply = servers.answer({"error": "no healthy upstream"}, 503)
        elif isinstance(prompt, list) and not ids:
            reply = servers.answer({"error": {"message": "prompt must be a string"}}, 400)
        else:
            count = len(prompt if isinstance(prompt, list) else prompt.encode())
            usage = {"prompt_tokens": count + added + wrong * count // 100, "completion_tokens": 4}
            reply = servers.answer({"model": "m", "choices": [{"text": "walnut"}], "usage": usage})
        await servers.replay({request.path: reply})(request, writer)

    return behave


@pytest.mark.parametrize(
    ("server", "mode", "added"),
    [
        (counting(), Mode.COMPLETION_IDS, 0),
        (counting(11), Mode.COMPLETION_IDS, 11),
        (counting(400), Mode.COMPLETION_IDS, 400),  # a system prompt before every prompt
        (counting(1, ids=False), Mode.COMPLETION_TEXT, 1),
        (counting(0, fails=2), Mode.COMPLETION_IDS, 0),
    ],
)
def test_calibration_finds_the_most_exact_way(server: servers.Behaviour, mode: Mode, added: int) -> None:
    async def use(asking: NetworkProber, server: servers.Server) -> tuple[Any, Any, int]:
        await asking.calibrate()
        prompt = await asking.framed(draw_marker(seeded(1)), 900, Tail(" Code Q:"))
        reply = await asking.ask("A", prompt, max_tokens=8)
        assert asking.mode is not None
        return asking.mode, asking.templates[asking.mode, "A"], reply.prompt_tokens or 0

    assert with_server(server, use) == (mode, added, 900)


@pytest.mark.parametrize(
    ("server", "said", "denied"),
    [
        (counting(wrong=7), "tokens more than were sent", False),
        (counting(5_000), "tokens more than were sent", False),
        (servers.html(404), "no tokenizer", False),
    ],
)
def test_a_target_whose_counts_cannot_be_trusted_is_not_asked(server: Any, said: str, denied: bool) -> None:
    async def use(asking: NetworkProber, server: servers.Server) -> None:
        await asking.calibrate()

    with pytest.raises(CannotAsk, match=said) as raised:
        with_server(server, use)
    assert raised.value.denied is denied


def test_a_refused_key_is_said_at_once() -> None:
    async def behave(request: servers.Request, writer: Any) -> None:
        routes = {
            "/tokenize": servers.answer({"tokens": list(range(9))}),
            "/v1/completions": servers.answer({"error": "Unauthorized"}, 401),
        }
        await servers.replay(routes)(request, writer)

    async def use(asking: NetworkProber, server: servers.Server) -> int:
        with pytest.raises(CannotAsk, match="refused the key of tenant A") as raised:
            await asking.calibrate()
        assert raised.value.denied
        return server.asked("/v1/completions")

    assert with_server(behave, use) == 1  # not retried


def test_counters_of_a_node_that_is_silent_are_absent_and_not_zero() -> None:
    async def use(asking: NetworkProber, server: servers.Server) -> Any:
        asking.node_wires = (
            Client(f"http://127.0.0.1:{servers.closed_port()}", allow=ALLOW | {("GET", "/metrics")}),
        )
        return await asking.counters()

    assert with_server(servers.hanging(), use) == {}
