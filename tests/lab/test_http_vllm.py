"""The vLLM face against answers recorded from a real 0.32.0: same keys, types, headers and status for
the same requests."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from kvaudit.lab.config import LabConfig
from tests.lab.asking import A, B, frames, with_lab

PAYLOADS = Path(__file__).parent.parent / "payloads" / "vllm-0.32.0"
CONFIG = LabConfig(
    flavour="vllm", unified=True, context=2_048, prefill_pool=8_192, node_key="sk-test", model="tiny-llama"
)


def recorded(name):
    """(status, headers, body bytes) of a recorded answer."""
    head, _, body = (PAYLOADS / f"{name}.http").read_text().partition("\n< (headers")
    answer = [line[2:] for line in head.splitlines() if line.startswith("< ")]
    headers = dict(line.split(": ", 1) for line in answer[1:])
    return int(answer[0].split()[1]), headers, body.partition("\n\n")[2].encode()


def shape(value):
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    )


async def _raw(lab, method, path, body=None, key="sk-test"):
    url = lab.inside.node_urls[0]
    async with lab.inside.client(url, allow=[(method, path)], key=key) as client:
        content = None if body is None else orjson.dumps(body)
        request = client._build(method, path, content, "application/json", (), client.limits)
        answer = await (await client._open_pool()).handle_async_request(request)
        parts = [part async for part in answer.stream]
        await answer.stream.aclose()
        headers = {name.decode().lower(): value.decode() for name, value in answer.headers}
        return answer.status, headers, b"".join(parts)


IDS = {n: [65 + n % 60 for n in range(n)] for n in (300, 1_500, 2_047, 2_048, 2_049)}
TOKENS20 = list(range(40, 60))
POSTS = [
    ("c_badmodel", {"model": "nope", "prompt": "x", "max_tokens": 1}),
    ("c_ids_2047_mt1", {"prompt": IDS[2_047], "temperature": 0, "max_tokens": 1}),
    ("c_ids_2047_mt2", {"prompt": IDS[2_047], "temperature": 0, "max_tokens": 2}),
    ("c_ids_2048_mt1", {"prompt": IDS[2_048], "temperature": 0, "max_tokens": 1}),
    ("c_ids_2049_mt1", {"prompt": IDS[2_049], "temperature": 0, "max_tokens": 1}),
    ("c_ids_N1_stream", {"prompt": IDS[2_049], "max_tokens": 1, "stream": True}),
    ("c_tokenids_return_ids", {"prompt": TOKENS20, "max_tokens": 4, "return_token_ids": True}),
    ("post_v1_completions", {"prompt": "hi", "max_tokens": 1}),
    ("salt_A1", {"prompt": IDS[1_500], "max_tokens": 1, "cache_salt": "tenant-A"}),
    ("salt_bad_long", {"prompt": "hello", "max_tokens": 1, "cache_salt": "x" * 2_159}),
    ("unknown_field", {"prompt": "hello", "max_tokens": 1, "kvaudit_unknown": 1}),
]


@pytest.mark.parametrize(("name", "body"), POSTS, ids=[name for name, _ in POSTS])
def test_completions_answer_as_recorded(name, body):
    status, headers, content = with_lab(
        lambda lab: _raw(lab, "POST", "/v1/completions", {"model": "tiny-llama", **body}), [], CONFIG
    )
    real_status, real_headers, real = recorded(name)
    assert status == real_status
    assert headers["content-type"] == real_headers["content-type"]
    assert headers.get("vary") == real_headers.get("vary")
    ours, theirs = orjson.loads(content), orjson.loads(real)
    assert shape(ours) == shape(theirs)
    assert list(ours) == list(theirs)
    if status != 200:
        assert ours == theirs, "error texts, types, params and codes are the recorded ones"


def test_completion_tokens_are_clamped_as_recorded():
    for name in ("c_ids_2047_mt1", "c_ids_2047_mt2"):
        body = dict(POSTS)[name]
        content = with_lab(lambda lab, b=body: _raw(lab, "POST", "/v1/completions", b), [], CONFIG)[2]
        usage, real = orjson.loads(content)["usage"], orjson.loads(recorded(name)[2])["usage"]
        for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert usage[field] == real[field]


@pytest.mark.parametrize(
    ("name", "path", "key"),
    [
        ("get_version", "/version", "sk-test"),
        ("get_health", "/health", "sk-test"),
        ("get_load", "/load", "sk-test"),
        ("get_v1_models", "/v1/models", "sk-test"),
        ("get_v1_models_wrongkey", "/v1/models", "sk-wrong"),
        ("get_server_info", "/server_info", "sk-test"),
    ],
)
def test_discovery_answers_as_recorded(name, path, key):
    status, headers, content = with_lab(lambda lab: _raw(lab, "GET", path, key=key), [], CONFIG)
    real_status, real_headers, real = recorded(name)
    assert status == real_status
    assert headers.get("content-type") == real_headers.get("content-type")
    assert headers.get("vary") == real_headers.get("vary")
    if content:
        assert shape(orjson.loads(content)) == shape(orjson.loads(real))


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        (
            "c_ids_Nm1_stream",
            "/v1/completions",
            {"prompt": IDS[2_047], "max_tokens": 1, "stream_options": {"include_usage": True}},
        ),
        (
            "h_stream",
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "z" * 50}],
                "max_tokens": 3,
                "stream_options": {"include_usage": True},
            },
        ),
    ],
)
def test_streams_have_the_recorded_frames(name, path, body):
    status, headers, content = with_lab(
        lambda lab: _raw(lab, "POST", path, {**body, "stream": True}), [], CONFIG
    )
    _, real_headers, real = recorded(name)
    assert status == 200
    assert headers["content-type"] == real_headers["content-type"]

    def frames_of(text):
        return [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")]

    ours, theirs = frames_of(content), frames_of(real)
    assert ours[-1] == theirs[-1] == "[DONE]"
    first, last, usage = orjson.loads(ours[0]), orjson.loads(ours[-3]), orjson.loads(ours[-2])
    real_first = orjson.loads(theirs[0])
    real_first.pop("usage", None)  # asked for with continuous_usage_stats, which the lab does not know
    assert shape(first) == shape(real_first)
    assert shape(last["choices"][0]) == shape(orjson.loads(theirs[-3])["choices"][0])
    assert shape(usage) == shape(orjson.loads(theirs[-2]))


def test_plain_usage_has_null_details_without_the_flag():
    from dataclasses import replace

    content = with_lab(
        lambda lab: _raw(lab, "POST", "/v1/completions", {"prompt": IDS[300], "max_tokens": 1}),
        [],
        replace(CONFIG, cache_report=False),
    )[2]
    assert shape(orjson.loads(content)) == shape(orjson.loads(recorded("plain_comp0")[2]))


def test_a_key_guards_v1_only():
    async def use(lab):
        guarded = await _raw(lab, "POST", "/v1/completions", {"prompt": "hi", "max_tokens": 1}, key="")
        open_ = await _raw(lab, "POST", "/invocations", {"prompt": "hi", "max_tokens": 1}, key="")
        tokens = await _raw(lab, "POST", "/tokenize", {"prompt": "the quick brown fox"}, key="")
        return guarded, open_, tokens

    guarded, open_, tokens = with_lab(use, [], CONFIG)
    real = recorded("post_v1_completions_nokey")
    assert (guarded[0], guarded[2]) == (real[0], real[2].strip())
    assert shape(orjson.loads(open_[2])) == shape(orjson.loads(recorded("post_invocations_nokey")[2]))
    assert shape(orjson.loads(tokens[2])) == shape(orjson.loads(recorded("post_tokenize")[2]))


def test_every_metric_and_label_of_the_lab_is_a_recorded_one():
    def names(text):
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return {re.split(r"[{ ]", line)[0] for line in lines if line.startswith("vllm:")}

    def labels(text):
        line = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info{"))
        return set(re.findall(r'(\w+)="', line))

    ours = with_lab(lambda lab: _raw(lab, "GET", "/metrics"), [], CONFIG)[2].decode()
    real = recorded("get_metrics")[2].decode() or (PAYLOADS / "get_metrics.http").read_text()
    assert names(ours) <= names(real)
    assert labels(ours) <= labels(real)


def test_nixl_counters_are_there_only_in_a_pair():
    alone = with_lab(lambda lab: _raw(lab, "GET", "/metrics"), [], CONFIG)[2]
    pair = with_lab(lambda lab: _raw(lab, "GET", "/metrics"), [], LabConfig(flavour="vllm"))[2]
    assert b"nixl" not in alone
    assert b"vllm:nixl_num_kv_expired_reqs_total" in pair


def test_salts_separate_and_repeat_as_recorded():
    async def use(lab):
        cached = []
        for salt in ("A", "A", "B", None, None):
            body = {"prompt": IDS[1_500], "max_tokens": 1} | ({"cache_salt": salt} if salt else {})
            said = orjson.loads((await _raw(lab, "POST", "/v1/completions", body))[2])
            cached.append(said["usage"]["prompt_tokens_details"]["cached_tokens"])
        return cached

    assert with_lab(use, [], CONFIG) == [0, 1_488, 0, 0, 1_488]


def test_a_member_of_a_pair_serves_ordinary_prompts_alone():
    async def use(lab):
        body = {"prompt": frames("amber falcon", 300), "max_tokens": 4}
        return [(await lab.post(url, "/v1/completions", body))[0] for url in lab.inside.node_urls]

    assert with_lab(use, [], LabConfig(flavour="vllm")) == [200, 200]


def test_a_pool_below_the_context_does_not_start_unless_the_engine_is_old():
    small = LabConfig(flavour="vllm", prefill_pool=5_328)
    with pytest.raises(ValueError, match="estimated maximum model length is 5312"):
        with_lab(lambda lab: lab.ask(B, "hello"), [], small)

    async def use(lab):
        return (await lab.ask(A, "hello", 1))[0]

    assert with_lab(use, ["wedge_at_limit"], small) == 200


def test_older_releases_refuse_instead_of_clamping():
    from dataclasses import replace

    old = replace(CONFIG, engine_version="0.27.1")
    status, _, content = with_lab(
        lambda lab: _raw(lab, "POST", "/v1/completions", {"prompt": "x" * 2_000, "max_tokens": 100}), [], old
    )
    assert status == 400
    assert "for a total of 2100 tokens" in orjson.loads(content)["error"]["message"]
