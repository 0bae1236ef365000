"""Which adapter takes which server, with the harmless paths alone and in the order of the registry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvaudit.auditor.engines import MODULES, get
from kvaudit.auditor.engines.contract import Engine
from tests.auditor.engines import payloads
from tests.auditor.engines.payloads import Served, answers

ADAPTERS = tuple(get(name) for name in MODULES if name != "generic")


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
        (payloads.sglang_0_4_6_post5, "sglang"),
        (payloads.sglang_0_5_3, "sglang"),
        (payloads.sglang_prefill_0_5_19, "sglang"),
        (payloads.sglang_decode_0_5_22, "sglang"),
        (payloads.sglang_rust_0_5_22, "sglang"),
        (payloads.sglang_hidden_pool, "sglang"),
        (payloads.sglang_router, "sglang"),
        (payloads.sglang_rust_router, "sglang"),
        (payloads.vllm_recorded, "vllm"),
        (lambda: payloads.vllm_recorded(key=False), "vllm"),
        (payloads.vllm_0_8_5, "vllm"),
        (payloads.vllm_development, "vllm"),
        (payloads.dynamo_frontend, "vllm"),  # as a router; its workers may be of any engine
        (payloads.trtllm_1_3, "trtllm"),
        (payloads.trtllm_drained, "trtllm"),
        (payloads.trtllm_1_1, "trtllm"),
        (payloads.trtllm_disaggregated, "trtllm"),
        (lambda: payloads.served({}), ""),
        (lambda: payloads.served({}, fallback=payloads.UNAUTHORIZED), ""),
        (lambda: payloads.served({}, fallback=(200, b"<html>", "text/html")), ""),
        (lambda: payloads.served({}, fallback=(200, b"{}", "application/json")), ""),
    ],
)
def test_each_server_by_its_own_adapter(build: Callable[[], Served], engine: str) -> None:
    assert first_to_recognise(build()) == engine


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.id)
def test_what_is_asked_of_strangers_takes_nothing_from_anyone(adapter: Engine) -> None:
    asked = {step.path for step in adapter.plan if step.identifies}
    assert asked
    drained = {step.path for each in ADAPTERS for step in each.plan if step.destructive}
    assert not asked & drained
    # Other engines act on these: LMDeploy ends on /terminate, LMCache writes on /loglevel.
    assert not asked & {"/terminate", "/loglevel", "/perf_metrics", "/flush_cache"}


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.id)
def test_paths_are_plain(adapter: Engine) -> None:
    for path in (*(step.path for step in adapter.plan), *adapter.gets, *adapter.posts):
        assert path.startswith("/")
        assert "?" not in path
