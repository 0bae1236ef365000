"""Which adapter takes which server, with the harmless paths alone and in the order of the registry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvaudit.auditor.engines import RECOGNISABLE, get
from kvaudit.auditor.engines.contract import Adapter
from tests.auditor.engines import payloads
from tests.auditor.engines.payloads import Served, answers

ADAPTERS = tuple(map(get, RECOGNISABLE))


def first_to_recognise(payload: Served) -> str:
    """As the reader does: each adapter in turn after its identifying paths were asked too."""
    seen = answers(payload)
    asked: set[str] = set()
    for adapter in ADAPTERS:
        asked |= {step.path for step in adapter.plan if step.identifies}
        if adapter.recognises({path: answer for path, answer in seen.items() if path in asked}):
            return adapter.id
    return ""


@pytest.mark.parametrize(
    ("build", "engine"),
    [
        *((build, engine) for engine, builders in payloads.BUILDERS.items() for build in builders),
        (payloads.sglang_decode_0_5_22, "sglang"),
        (payloads.sglang_hidden_pool, "sglang"),
        (payloads.sglang_rust_router, "sglang"),
        (payloads.vllm_recorded, "vllm"),
        (lambda: payloads.vllm_recorded(key=False), "vllm"),
        (payloads.dynamo_frontend, "vllm"),  # as a router; its workers may be of any engine
        (lambda: payloads.served({}), ""),
        (lambda: payloads.served({}, fallback=payloads.UNAUTHORIZED), ""),
        (lambda: payloads.served({}, fallback=(200, b"<html>", "text/html")), ""),
        (lambda: payloads.served({}, fallback=(200, b"{}", "application/json")), ""),
    ],
)
def test_each_server_by_its_own_adapter(build: Callable[[], Served], engine: str) -> None:
    assert first_to_recognise(build()) == engine


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.id)
def test_what_is_asked_of_strangers_takes_nothing_from_anyone(adapter: Adapter) -> None:
    asked = {step.path for step in adapter.plan if step.identifies}
    assert asked
    drained = {step.path for each in ADAPTERS for step in each.plan if step.destructive}
    assert not asked & drained
    # Other engines act on these: LMDeploy ends on /terminate, LMCache writes on /loglevel.
    assert not asked & {"/terminate", "/loglevel", "/perf_metrics", "/flush_cache"}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.id)
def test_paths_are_plain(adapter: Adapter) -> None:
    for path in (*(step.path for step in adapter.plan), *adapter.gets, *adapter.posts):
        assert path.startswith("/")
        assert "?" not in path


def test_each_has_servers_that_are_recognised_and_fuzzed() -> None:
    assert set(payloads.BUILDERS) == set(RECOGNISABLE)
