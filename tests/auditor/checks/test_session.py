"""The session check: every fault of a small session service, and the judge's tables."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.session.api import (
    Answer,
    Fill,
    Step,
    UnusablePlan,
    draw_token,
    fits,
    path_problem,
    render_body,
    render_path,
)
from kvaudit.auditor.checks.session.probe import SessionProbe
from kvaudit.auditor.checks.session.seen import ForeignData, SessionSeen
from kvaudit.auditor.checks.session.verdict import judge_session, missing_parts
from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.auditor.prober.session_wire import SessionClient, session_for
from kvaudit.auditor.readings import EngineFacts, read
from kvaudit.auditor.targets import Target, from_deployment
from kvaudit.auditor.text.markers import seeded
from kvaudit.auditor.verdict import Result, Verdict
from tests.session_server import FAULTS, FLEET_FILE, SessionServer, serving_sessions


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in a loop of its own."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


KEYS = {"KEY_A": "key-a", "KEY_B": "key-b"}


def target(url: str, text: str = FLEET_FILE, keys: dict[str, str] = KEYS) -> Target:
    fleet = parse_fleet(text.format(url=url))
    assert not fleet.problems, fleet.problems
    return from_deployment(fleet.deployments[0], environ=keys)


class Wire(SessionClient):
    """Waiting for idle sessions to end costs nothing: the service is told that they have."""

    server: SessionServer

    async def sleep(self, seconds: float) -> None:
        if seconds >= 1:
            self.server.drop_idle()
        else:
            await asyncio.sleep(min(seconds, 0.02))

    async def call(self, account: int, step: Step, fill: Fill, **how: Any) -> Answer:
        """A call that is cut off while the service is at work on it, however slow the machine: within the real two
        milliseconds it may not even have come there."""
        self.server.cut_off = bool(how.get("cut")) and "shifted" in self.server.faults
        return await super().call(account, step, fill, **how | ({"cut": 1.0} if self.server.cut_off else {}))


def wire(server: SessionServer, given: Target, **options: float) -> Wire:
    assert given.session is not None
    made = Wire(
        given.session,
        [(tenant.name, tenant.credentials) for tenant in given.tenants],
        draw=seeded(3),
        patience=options.pop("patience", 0.1),
        most_requests=int(options.pop("most_requests", 5000)),
    )
    made.server = server
    return made


async def audited(
    *faults: str, given: Target | None = None, **options: float
) -> tuple[Result, SessionServer]:
    async with (
        serving_sessions(*faults, save_seconds=0.08) as server,
        wire(server, given or target(server.url), **options) as way,
    ):
        audit = Audit("game", [], session=way)
        return SessionProbe().judge(await SessionProbe().observe(audit), audit), server


@pytest.mark.parametrize(
    ("fault", "verdict", "severity", "said"),
    [
        ("", Verdict.PASS, "", "none showed its data"),
        ("not_reset", Verdict.FAIL, "critical", "had left in a session that ended"),
        ("stale_readable", Verdict.FAIL, "critical", "through the handle of a session that had ended"),
        ("stale_writable", Verdict.FAIL, "critical", "through the handle of a session that had ended"),
        ("late_lands", Verdict.FAIL, "critical", "saved after its session had been released"),
        ("shifted", Verdict.FAIL, "critical", "replies are shifted"),
        ("oversize", Verdict.FAIL, "high", "A request of size 5 was accepted 1 of 1"),
        ("leak", Verdict.PASS, "", "did not come back to 0"),
        ("swallow", Verdict.INCONCLUSIVE, "", "could be read back by their own account"),
    ],
)
@in_loop
async def test_fault(fault: str, verdict: Verdict, severity: str, said: str) -> None:
    result, _ = await audited(*([fault] if fault else []))
    assert (result.verdict, result.severity) == (verdict, severity), result.summary
    assert said in result.summary
    assert result.warn == (fault == "leak")


def test_every_fault_of_the_service_is_in_the_table() -> None:
    marks = [mark for mark in test_fault.pytestmark if mark.name == "parametrize"]
    assert {row[0] for row in marks[0].args[1]} == {"", *FAULTS}


@in_loop
async def test_only_declared_steps_are_sent() -> None:
    result, server = await audited()
    assert result.verdict is Verdict.PASS
    sent = {
        (method, path.split("/")[1], path.split("/")[-1].rstrip("0123456789"))
        for _, method, path in server.requests
    }
    assert {(method, first) for method, first, _ in sent} == {
        ("GET", "pool"),
        ("POST", "sessions"),
        ("PUT", "sessions"),
        ("GET", "sessions"),
        ("DELETE", "sessions"),
        ("POST", "echo"),
    }
    # A handle such as 3/7 is one path segment: the slash of the server's own id never splits the path.
    assert all("%2F" in path for _, _, path in server.requests if path.startswith("/sessions/"))


@in_loop
async def test_stored_bodies_hold_no_text_of_the_service() -> None:
    result, _ = await audited("not_reset")
    bodies = b"".join(item.body or b"" for item in result.evidence)
    assert result.evidence
    assert b"content" not in bodies
    assert b"hmac_sha256" in bodies


@in_loop
async def test_wrong_key_is_an_error() -> None:
    async with serving_sessions() as server:
        for keys in ({"KEY_A": "no", "KEY_B": "key-b"}, {"KEY_A": "key-a", "KEY_B": "no"}):
            text = FLEET_FILE.replace(
                "      pool: {{path: /pool, capacity: /pool/size, in_use: /pool/used, max_request: /pool/max}}\n",
                "      largest: 4\n",
            )
            async with wire(server, target(server.url, text, keys)) as way:
                audit = Audit("game", [], session=way)
                result = SessionProbe().judge(await SessionProbe().observe(audit), audit)
            assert result.verdict is Verdict.ERROR
            assert "refused the key" in result.summary


@in_loop
async def test_pointer_to_nothing_is_an_error() -> None:
    async with serving_sessions() as server:
        given = target(
            server.url, FLEET_FILE.replace("capacity: /pool/size, in_use", "capacity: /pool/none, in_use")
        )
        async with wire(server, given) as way:
            audit = Audit("game", [], session=way)
            result = SessionProbe().judge(await SessionProbe().observe(audit), audit)
    assert result.verdict is Verdict.ERROR
    assert "capacity" in result.summary


@in_loop
async def test_reuse_that_nothing_tells_is_inconclusive() -> None:
    async with serving_sessions() as server:
        text = FLEET_FILE.replace(", slot: /slot", "").replace(
            "      pool: {{path: /pool, capacity: /pool/size, in_use: /pool/used, max_request: /pool/max}}\n",
            "      largest: 4\n",
        )
        async with wire(server, target(server.url, text)) as way:
            audit = Audit("game", [], session=way)
            result = SessionProbe().judge(await SessionProbe().observe(audit), audit)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "reuse a slot" in result.summary


@in_loop
async def test_reuse_follows_from_counts_where_slots_have_no_number() -> None:
    async with (
        serving_sessions() as server,
        wire(server, target(server.url, FLEET_FILE.replace(", slot: /slot", ""))) as way,
    ):
        audit = Audit("game", [], session=way)
        result = SessionProbe().judge(await SessionProbe().observe(audit), audit)
    assert result.verdict is Verdict.PASS, result.summary
    assert result.measures["reuse_told_by"] == "count"
    assert result.measures["reused_claims"] < result.measures["claims"]


@in_loop
async def test_ceiling_stops() -> None:
    result, server = await audited(most_requests=100)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "ceiling" in result.summary
    assert len(server.requests) <= 100


@in_loop
async def test_nobody_to_ask() -> None:
    audit = Audit("game", [])
    seen = await SessionProbe().observe(audit)
    result = SessionProbe().judge(seen, audit)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "fleet file" in result.summary


@in_loop
async def test_undeclared_path_is_refused_before_sending() -> None:
    async with serving_sessions() as server, wire(server, target(server.url)) as way:
        answer = await way.call(0, Step("POST", "/admin/flush"), lambda name: "x")
        assert answer.status == 0
        assert "not on the allow-list" in answer.problem
        assert not server.requests


# -- the judge ---------------------------------------------------------------------------------------

FULL = SessionSeen(
    accounts=("a", "b"),
    claims=60,
    reused=59,
    reuse_by="slot",
    seeds=60,
    own_read=8,
    own_written=8,
    released={"end": 15, "drop": 15, "timeout": 15, "reject": 15},
    oversize_asked=4,
    stale_asked=16,
    late_tried=4,
    late_tested=2,
    echoes=40,
    echoes_right=40,
    cut=8,
    requests=500,
    largest=4,
)


def pool(capacity: int) -> EngineFacts:
    return EngineFacts(engine="generic", pool=read(capacity, "GET /pool"))


def find(kind: str) -> ForeignData:
    return ForeignData(kind, "b", "a", "kv" + "a" * 16, "end", False, 0)


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        ({}, Verdict.PASS, "Fewer than 5.0%"),
        ({"finds": [find("released data")]}, Verdict.FAIL, "b read what a had left"),
        ({"finds": [find("late write")], "void": 400}, Verdict.FAIL, "saved after"),
        ({"oversize_taken": 1}, Verdict.FAIL, "size 5 was accepted 1 of 4"),
        ({"pool": pool(3)}, Verdict.FAIL, "holds 3, and one request may take 4"),
        ({"pool_problem": "it answered 404"}, Verdict.ERROR, "it answered 404"),
        ({"denied": "b (403)"}, Verdict.ERROR, "refused the key of b (403)"),
        ({"void": 51}, Verdict.INCONCLUSIVE, "no usable answer"),
        ({"reused": 58}, Verdict.INCONCLUSIVE, "too few claims"),
        ({"reused": 0}, Verdict.INCONCLUSIVE, "reuse a slot"),
        ({"own_read": 7}, Verdict.INCONCLUSIVE, "7 of 8 markers"),
        ({"released": {"end": 60}}, Verdict.INCONCLUSIVE, "no session ended by drop"),
        ({"undeclared": ("late",)}, Verdict.INCONCLUSIVE, "neither declared nor called absent"),
        ({"largest": None}, Verdict.INCONCLUSIVE, "largest request is unknown"),
        ({"oversize_asked": 0}, Verdict.INCONCLUSIVE, "size 5 was answered"),
        ({"late_tested": 0}, Verdict.INCONCLUSIVE, "none came late"),
        ({"echoes_right": 30}, Verdict.INCONCLUSIVE, "30 of 40"),
        ({"stopped": "The window closed."}, Verdict.INCONCLUSIVE, "The window closed."),
    ],
)
def test_judge(change: dict[str, object], verdict: Verdict, said: str) -> None:
    result = judge_session(replace(FULL, **change))  # type: ignore[arg-type]
    assert result.verdict is verdict, result.summary
    assert said in result.summary


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stale_own": 2}, "still showed their own old data"),
        ({"stale_taken": 2}, "were accepted"),
        ({"stale_odd": 1}, "does not say why"),
        ({"pool": pool(4)}, "little room"),
        ({"in_use_before": 10.0, "in_use_after": 12.0}, "did not come back to 10"),
    ],
)
def test_warnings(change: dict[str, object], said: str) -> None:
    result = judge_session(replace(FULL, **change))  # type: ignore[arg-type]
    assert (result.verdict, result.warn) == (Verdict.PASS, True)
    assert said in result.summary


def test_use_may_move_by_one_or_two_percent() -> None:
    assert not judge_session(replace(FULL, in_use_before=10.0, in_use_after=11.0)).warn
    assert not judge_session(replace(FULL, in_use_before=200.0, in_use_after=204.0)).warn


def test_what_the_service_does_not_have_is_said() -> None:
    plan = target("http://127.0.0.1:1").session
    assert plan is not None
    assert missing_parts(plan) == ()
    bare = replace(plan, wait=0, steps=tuple(step for step in plan.steps if step[0] != "save"))
    assert missing_parts(bare) == ("drop", "timeout", "late")
    assert missing_parts(replace(bare, without=frozenset({"drop", "timeout", "late"}))) == ()
    result = judge_session(
        replace(FULL, released={"end": 30, "reject": 30}, not_there=frozenset({"drop", "timeout"}))
    )
    assert result.verdict is Verdict.PASS
    assert "no drop, timeout" in result.does_not_prove


# -- templates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("7", "/s/7"),
        ("a/b", "/s/a%2Fb"),
        ("../../admin", "/s/..%2F..%2Fadmin"),
        ("x?admin=1#y", "/s/x%3Fadmin%3D1%23y"),
        ("a b\r\nHost: evil", "/s/a%20b%0D%0AHost%3A%20evil"),
        ("ü", "/s/%C3%BC"),
    ],
)
def test_captured_values_cannot_leave_their_place(value: str, path: str) -> None:
    rendered = render_path("/s/{{id}}", lambda name: value)
    assert rendered == path
    assert fits("/s/{{id}}", rendered)


@pytest.mark.parametrize("value", ["", ".", "..", "x" * 513])
def test_captured_values_that_no_path_may_hold(value: str) -> None:
    with pytest.raises(UnusablePlan):
        render_path("/s/{{id}}/slots", lambda name: value)


@pytest.mark.parametrize("path", ["/s/7/x", "/s/", "/admin", "/s/7?x=1", "/s/7/../8", "/S/7"])
def test_other_paths_do_not_fit(path: str) -> None:
    assert not fits("/s/{{id}}", path)


def test_bodies_keep_values_inside_their_string() -> None:
    body = render_body(
        '{"id": "{{id}}", "n": "{{size}}", "t": ["{{id}} x"]}',
        {"id": '","admin":"1', "size": "3"}.__getitem__,
    )
    assert body == b'{"id":"\\",\\"admin\\":\\"1","n":3,"t":["\\",\\"admin\\":\\"1 x"]}'


@pytest.mark.parametrize("path", ["x", "//evil/x", "/a/../b", "/a b", "/a#b", "/{{ID}}", "/a/./b", "/ü"])
def test_paths_that_no_step_may_have(path: str) -> None:
    assert path_problem(path)


def test_tokens_differ() -> None:
    draw = seeded(1)
    assert len({draw_token(draw) for _ in range(1000)}) == 1000


@in_loop
async def test_wire_of_a_target() -> None:
    given = target("http://127.0.0.1:1")
    way, why = session_for(given)
    assert way is not None
    assert why == ""
    assert way.accounts == ("a", "b")
    await way.aclose()
    for lacking, said in (
        (replace(given, session=None), "fleet file"),
        (replace(given, tenants=given.tenants[:1]), "Two tenants"),
    ):
        way, why = session_for(lacking)
        assert way is None
        assert said in why
        audit = Audit("game", [], session=way, why_no_session=why)
        result = SessionProbe().judge(await SessionProbe().observe(audit), audit)
        assert result.verdict is Verdict.INCONCLUSIVE
        assert said.lower() in result.summary.lower()
