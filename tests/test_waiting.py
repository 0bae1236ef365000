"""Waits say what they waited for; and no test sleeps or looks at a clock, but where a reason is written down."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import waiting
from tests.waiting import bounded, until, until_async

TESTS = Path(__file__).parent

SLEEPS = {("time", "sleep"), ("asyncio", "sleep"), ("anyio", "sleep"), ("*", "wait_for_timeout")}
CLOCKS = {("time", name) for name in ("time", "monotonic", "perf_counter", "process_time", "monotonic_ns")}

VIRTUAL = "on the lab's virtual clock, where sleeping costs no time and its order is certain"
SERVER = "the pace of a server under test, not a wait of the test"
ALLOWED = {
    "waiting.py": "the place where it is done",
    "servers.py": SERVER,
    "session_server.py": SERVER,
    "auditor/checks/test_session.py": SERVER,
    "auditor/transport/test_client.py": SERVER,
    "lab/interleavings.py": VIRTUAL,
    "lab/test_clock.py": VIRTUAL,
    "lab/test_faults_caching.py": VIRTUAL,
    "lab/test_faults_gateway.py": VIRTUAL,
    "lab/test_faults_oddities.py": VIRTUAL,
    "lab/test_faults_transfer.py": VIRTUAL,
    "lab/test_router.py": VIRTUAL,
    "auditor/prober/test_health.py": VIRTUAL,
    "server/notify/channels/test_webhook.py": "the moment of a signature",
    "server/notify/test_signing.py": "the moment of a signature",
    "server/audits/execution/test_standstill.py": "a clock that is handed to the code",
    "server/ops/slow_app.py": SERVER,
    "server/ops/test_drill_disk.py": "nothing to wait for: it must simply not end",
    "server/ops/test_supervisor.py": "a clock that is handed to the code",
    "test_parsers_time.py": "time that grows with the length is the subject; the bound is far above it",
}
"""File -> why it may."""


def timed(source: str) -> list[str]:
    """The calls in ``source`` that sleep or look at a clock; ``sleep(0)`` gives way and does not wait."""
    found = []
    tree = ast.parse(source)
    imported = dict(_imported(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            called = (imported.get(owner, ("", owner))[1] or owner, node.func.attr)
        elif isinstance(node.func, ast.Name):
            called = imported.get(node.func.id, ("", ""))
        else:
            continue
        yields = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if called in CLOCKS or (called in SLEEPS and not yields) or ("*", called[1]) in SLEEPS:
            found.append(f"line {node.lineno}: {'.'.join(filter(None, called))}")
    return found


def _imported(tree: ast.AST) -> Iterator[tuple[str, tuple[str, str]]]:
    """Local name -> (module, name) of ``from time import sleep as nap``, ("", module) of ``import time as t``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                yield name.asname or name.name, (node.module or "", name.name)
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield name.asname or name.name, ("", name.name)


def test_no_test_sleeps_or_counts_on_speed() -> None:
    """Wait with `tests.waiting.until`, bound with `tests.waiting.bounded`, or give the code a clock."""
    found = {str(path.relative_to(TESTS)): timed(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
    assert {name: calls for name, calls in found.items() if calls and name not in ALLOWED} == {}
    assert {name for name in ALLOWED if not found.get(name)} == set(), "these need no exception any more"


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("import time\ntime.sleep(1)", 1),
        ("import time as t\nt.sleep(seconds)", 1),
        ("from time import sleep as nap\nnap(0.1)", 1),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0.01)", 1),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0)", 0),
        ("page.wait_for_timeout(100)", 1),
        ("self.page.wait_for_timeout(100)", 1),
        ("import time\nbegan = time.monotonic()\nassert time.monotonic() - began < 2", 2),
        ("from time import perf_counter\nbegan = perf_counter()", 1),
        ('code = "import time; time.sleep(600)"', 0),  # a process that must live until it is killed
        ("clock.sleep(1)\ntimezone.now()\nrecord.time()", 0),
    ],
)
def test_what_counts_as_a_sleep_or_a_clock(source: str, calls: int) -> None:
    assert len(timed(source)) == calls


def test_a_wait_ends_with_the_thing_and_gives_it() -> None:
    seen = iter([0, "", None, 7])
    assert until(lambda: next(seen), "seven", pause=0) == 7
    later = iter([False, True])
    assert asyncio.run(until_async(lambda: next(later), "true", pause=0)) is True


def test_a_wait_in_vain_says_what_was_awaited_and_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s for: three rows; last seen: 0\nthe log"):
        until(lambda: 0, "three rows", 0, about=lambda: "the log")
    with pytest.raises(AssertionError, match="waited 0 s for: rows; last seen: \\[\\]"):
        asyncio.run(until_async(list, "rows", 0))


def test_what_means_not_yet_is_ignored_and_everything_else_is_not() -> None:
    def broken() -> bool:
        raise ConnectionError("away")

    with pytest.raises(AssertionError, match="last seen: ConnectionError: away"):
        until(broken, "an answer", 0, ignoring=(OSError,))
    with pytest.raises(ConnectionError):
        until(broken, "an answer", 0)


def test_a_bound_that_the_machine_would_decide_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="depends on the machine"), bounded(5, "it"):
        pass
    with bounded(15, "it"):
        pass
    moments = iter([100.0, 116.5])
    monkeypatch.setattr(waiting.time, "monotonic", lambda: next(moments))
    with (
        pytest.raises(AssertionError, match=r"it took 16\.5 s, which must stay below 15 s"),
        bounded(15, "it"),
    ):
        pass
