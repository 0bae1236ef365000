"""How SGLang is asked and read: ids on /generate, aborts inside a 200, the room after a prompt."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kvaudit.auditor.engines.completion import CompletionOptions, Mode
from kvaudit.auditor.engines.sglang.dialect import SGLangDialect
from kvaudit.auditor.engines.trtllm.dialect import TRTLLMDialect
from kvaudit.auditor.text.spelling import Prompt
from tests.auditor.checks.audits import node

SGLANG, TRTLLM = SGLangDialect(), TRTLLMDialect()
PROMPT = Prompt(3, b"12,7,3")


def test_generate_takes_ids_and_the_salt_under_the_name_that_every_version_knows() -> None:
    call = SGLANG.call(Mode.GENERATE_IDS, PROMPT, CompletionOptions("m", 5, salt="s"))
    assert call.path == "/generate"
    assert orjson.loads(call.body) == {
        "input_ids": [12, 7, 3],
        "sampling_params": {"max_new_tokens": 5, "temperature": 0.0},
        "stream": True,
        "extra_key": "s",
    }
    plain = orjson.loads(SGLANG.call(Mode.GENERATE_IDS, PROMPT, CompletionOptions("m", 5, stream=False)).body)
    assert plain["stream"] is False
    assert "extra_key" not in plain


def test_nothing_malformed_and_no_transfer_parameter_is_ever_sent() -> None:
    for mode in (Mode.COMPLETION_IDS, Mode.GENERATE_IDS):
        body = orjson.loads(SGLANG.call(mode, PROMPT, CompletionOptions("m", 5, salt="s")).body)
        assert not {
            name for name in body if "bootstrap" in name or "kv_transfer" in name or "dp_rank" in name
        }


def test_completions_come_first_since_tenants_see_their_usage() -> None:
    assert SGLANG.modes[:2] == (Mode.COMPLETION_IDS, Mode.GENERATE_IDS)


@pytest.mark.parametrize(
    ("reason", "finish", "error", "code"),
    [
        ({"type": "stop", "matched": 2}, "stop", "", None),
        ({"type": "length", "length": 8}, "length", "", None),
        ({"type": "abort", "message": "too long", "status_code": 400}, "abort", "too long", 400),
        ({"type": "abort"}, "abort", "", None),
        ("stop", "stop", "", None),
        (None, "", "", None),
        (["odd"], "", "", None),
    ],
)
def test_finish_reasons(reason: Any, finish: str, error: str, code: int | None) -> None:
    said = SGLANG.parse(
        {"text": "wal", "meta_info": {"finish_reason": reason, "prompt_tokens": 9, "cached_tokens": 0}}
    )
    assert (said.text, said.cumulative, said.finish, said.error) == ("wal", True, finish, error)
    assert said.code == code
    assert (said.prompt_tokens, said.cached_tokens, said.completion_tokens) == (9, 0, None)


def test_openai_shapes_are_read_as_everywhere() -> None:
    said = SGLANG.parse({"choices": [{"text": "a"}], "usage": {"prompt_tokens": 4}})
    assert (said.text, said.cumulative, said.prompt_tokens) == ("a", False, 4)


@pytest.mark.parametrize(
    ("nodes", "tokens", "room"),
    [
        ([node("", 5_328, settings={"page_size": 16})], 5_321, 0),  # the last page of a unified pool is kept
        ([node("", 5_328, settings={"page_size": 16})], 5_200, 111),
        ([node("", 5_328, settings={"page_size": 1})], 5_320, 6),
        ([node("prefill", 5_328), node("decode", 11_040, 8_192)], 5_321, 2_869),  # decode generates
        ([node("decode", 11_040, 8_192)], 9_000, 0),
        ([node("prefill", 5_328)], 5_000, None),
        ([node("", None)], 5_000, 1_048_576 - 1 - 5_000),  # a pool that is not shown bounds nothing
        ([], 5_000, None),
    ],
)
def test_room(nodes: list[Any], tokens: int, room: int | None) -> None:
    assert SGLANG.room([each.facts for each in nodes], tokens) == room


def test_counters_and_what_is_missing_is_absent() -> None:
    page = (
        b'sglang:prompt_tokens_total{tp_rank="0"} 100\nsglang:generation_tokens_total{tp_rank="0"} 20\n'
        b'sglang:num_running_reqs{tp_rank="0"} 1\nsglang:num_used_tokens{tp_rank="0"} 64\n'
    )
    assert SGLANG.read_counters(page) == {"served_tokens": 120.0, "running": 1.0, "pool_used": 64.0}
    assert SGLANG.read_counters(b"sglang:prompt_tokens_total 100\n") == {}
    assert SGLANG.read_counters(b"<html>") == {}


@pytest.mark.parametrize(
    ("payload", "ids"),
    [
        ({"tokens": [1, 2]}, (1, 2)),
        ({"tokens": []}, None),
        ({"tokens": [1, "2"]}, None),
        ({"tokens": [True]}, None),
        ({"tokens": [-1]}, None),
        ([], None),
        (None, None),
    ],
)
def test_token_ids(payload: Any, ids: tuple[int, ...] | None) -> None:
    assert SGLANG.token_ids(payload) == ids


def test_tensorrt_llm_refuses_unknown_fields_and_takes_salts_on_chat_only() -> None:
    call = TRTLLM.tokenize("hi", "m")
    assert call is not None
    assert (call.path, orjson.loads(call.body)) == ("/_internal/tokenize", {"prompt": "hi"})
    with pytest.raises(ValueError, match="salt"):
        TRTLLM.call(Mode.COMPLETION_IDS, PROMPT, CompletionOptions("m", 5, salt="s"))
    chat = TRTLLM.call(Mode.CHAT_TEXT, Prompt(1, text="hi"), CompletionOptions("m", 5, salt="s"))
    assert orjson.loads(chat.body)["cache_salt"] == "s"
