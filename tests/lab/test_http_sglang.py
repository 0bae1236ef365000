"""The SGLang face against the shapes of the released source."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from kvaudit.lab.config import LabConfig
from kvaudit.lab.http_base import LAB_HEADER
from tests.lab.asking import A, with_lab

PAYLOADS = Path(__file__).parent.parent / "payloads" / "sglang"


def _shape(value):
    """Keys and types of a document; numbers are one type, lists show their first element."""
    if isinstance(value, dict):
        return {name: _shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    )


def _covers(real, ours, where=""):
    """Every key of the real document is in ours, with the same type (null fits anything)."""
    if isinstance(real, dict) and isinstance(ours, dict):
        missing = real.keys() - ours.keys()
        assert not missing, f"{where}: {missing}"
        for name, each in real.items():
            _covers(each, ours[name], f"{where}.{name}")
    elif isinstance(real, list) and isinstance(ours, list):
        if real and ours:
            _covers(real[0], ours[0], f"{where}[0]")
    elif real is not None and ours is not None:
        assert _shape(real) == _shape(ours), where


@pytest.mark.parametrize(
    ("payload", "version", "role", "unified"),
    [
        ("server_info-prefill-0.5.19", "0.5.19", 0, False),
        ("server_info-decode-0.5.19", "0.5.19", 1, False),
        ("server_info-single-0.5.22", "0.5.22", 0, True),
        ("server_info-dp2-0.5.22", "0.5.22", 0, True),
    ],
)
def test_server_info_has_every_field_of_the_release(payload, version, role, unified):
    real = json.loads((PAYLOADS / f"{payload}.json").read_text())
    for name in ("disaggregation_ib_device", "load_balance_method"):
        real.pop(name, None)

    async def use(lab):
        return (await lab.get(lab.inside.node_urls[role], "/server_info"))[1]

    ours = orjson.loads(with_lab(use, [], LabConfig(engine_version=version, unified=unified)))
    _covers(real, ours)
    assert ours["disaggregation_mode"] == (real["disaggregation_mode"])
    assert ("launch_command" in ours) is ("launch_command" in real)
    assert ("frontend" in ours) is ("frontend" in real)


def test_loads_and_workers_have_every_field():
    async def use(lab):
        loads = orjson.loads((await lab.get(lab.inside.node_urls[0], "/v1/loads"))[1])
        key = lab.inside.deployment.config.router_key
        workers = orjson.loads((await lab.get(lab.inside.entry, "/workers", key=key))[1])
        denied = (await lab.get(lab.inside.entry, "/workers", key=lab.inside.keys[A]))[0]
        return loads, workers, denied

    loads, workers, denied = with_lab(use)
    _covers(json.loads((PAYLOADS / "v1_loads-dp2-0.5.22.json").read_text()), loads)
    real = json.loads((PAYLOADS / "workers-gateway.json").read_text())
    _covers(real, workers)
    assert [worker["worker_type"] for worker in workers["workers"]] == ["prefill", "decode"]
    assert denied == 401, "a tenant's key does not open the control plane"


@pytest.mark.parametrize(
    ("version", "present", "absent"),
    [
        ("0.5.19", {"/get_load", "/weight_version"}, {"/ready"}),
        ("0.5.20", {"/get_load", "/ready"}, set()),
        ("0.5.22", {"/ready"}, {"/get_load", "/weight_version"}),
    ],
)
def test_paths_come_and_go_with_the_release(version, present, absent):
    async def use(lab):
        url = lab.inside.node_urls[0]
        return {path: (await lab.get(url, path))[0] for path in present | absent}

    found = with_lab(use, [], LabConfig(engine_version=version))
    assert found == dict.fromkeys(present, 200) | dict.fromkeys(absent, 404)


def test_every_answer_says_that_this_is_a_lab():
    async def use(lab):
        async with lab.inside.client(lab.inside.entry, allow=[("GET", "/nowhere")]) as client:
            raw = await (await client._open_pool()).handle_async_request(
                client._build("GET", "/nowhere", None, "", (), client.limits)
            )
            headers = dict(raw.headers)
            await raw.aclose()
            return raw.status, headers

    status, headers = with_lab(use)
    assert status == 404
    assert headers[LAB_HEADER[0]] == b"test target, not a serving engine"


def test_generate_takes_token_ids_and_counts_them():
    async def use(lab):
        body = {"input_ids": list(b"one two one two one"), "sampling_params": {"max_new_tokens": 4}}
        return await lab.post(lab.inside.entry, "/generate", body, lab.inside.keys[A])

    status, said = with_lab(use)
    assert status == 200
    assert said["text"] == " two"
    meta = said["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (19, 4, 0)


def test_streams_join_to_the_whole_answer_and_end_with_usage():
    async def use(lab):
        body = {"prompt": "one two one two one", "max_tokens": 8, "stream_options": {"include_usage": True}}
        whole = await lab.ask(A, body["prompt"], 8)
        plain = await lab.stream(A, body)
        messages = [{"role": "user", "content": "one two one two one"}]
        chat = await lab.stream(A, {"messages": messages, "max_tokens": 8}, "/v1/chat/completions")
        native = await lab.stream(
            A, {"text": "one two one two one", "sampling_params": {"max_new_tokens": 8}}, "/generate"
        )
        return whole, plain, chat, native

    whole, plain, chat, native = with_lab(use)
    text = whole[1]["choices"][0]["text"]
    assert text == " two one"
    assert "".join(event["choices"][0]["text"] for event in plain[1] if event["choices"]) == text
    assert plain[1][-1]["usage"]["prompt_tokens"] == 19
    assert plain[2], "[DONE]"
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in chat[1]) == text
    assert native[1][-1]["text"] == text


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"prompt": ""}, "at least one prompt token"),
        ({"prompt": [1, 99_999]}, "Token id 99999 is out of vocabulary"),
        ({"prompt": {"a": 1}}, "prompt must be a string or a list of token ids"),
        ({"prompt": "x", "max_tokens": "many"}, "max_tokens must be an integer"),
        ({"prompt": "x", "temperature": 9}, "temperature must be between 0 and 2"),
        ({"prompt": "x", "max_tokens": 9_000}, "Requested token count exceeds"),
        ({"prompt": "x" * 8_192}, "longer than the model's context length (8192 tokens)"),
    ],
)
def test_bad_requests_are_400_with_a_sentence(body, sentence):
    async def use(lab):
        return await lab.post(lab.inside.entry, "/v1/completions", body, lab.inside.keys[A])

    status, said = with_lab(use)
    assert status == 400
    assert said["object"] == "error"
    assert sentence in said["message"]


def test_a_disaggregated_worker_refuses_a_request_without_a_room():
    async def use(lab):
        return await lab.post(lab.inside.node_urls[1], "/v1/completions", {"prompt": "hello"})

    status, said = with_lab(use)
    assert status == 400
    assert "bootstrap room" in said["message"]


def test_the_first_rejected_length_is_the_field_that_the_node_shows():
    async def use(lab):
        info = orjson.loads((await lab.get(lab.inside.node_urls[0], "/server_info"))[1])
        limit = info["max_req_input_len"]
        return limit, [(await lab.ask(A, "x" * n, 1))[0] for n in (limit - 1, limit)]

    assert with_lab(use) == (5_322, [200, 400])
