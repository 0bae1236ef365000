"""No secret survives, no innocent number is harmed: tables from real payloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.transport import Redactor, TooManySecrets, redact_text, secret_name
from tests import servers

SECRET = "sk-SECRET-0123456789abcdef"


@pytest.mark.parametrize(
    "name",
    [
        "api_key", "admin_api_key", "apiKey", "API_KEY", "x-api-key", "api_keys", "ssl_keyfile_password",
        "hf_token", "HF_TOKEN", "huggingface_token", "access_token", "auth_token", "client_secret",
        "aws_secret_access_key", "password", "passphrase", "authorization", "Authorization",
        "ssl_key_password", "credentials", "private_key", "session_token", "wandb_api_key", "hub_token",
        "mooncake_password",
    ],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert secret_name(name) == "strong"


@pytest.mark.parametrize(
    "name",
    [
        "max_total_num_tokens", "token_capacity", "token_capacity_swa", "tokenizer_path", "tokenizer_mode",
        "num_used_tokens", "max_req_input_len", "ssl_keyfile", "ssl_certfile", "eos_token", "eos_token_id",
        "bos_token", "pad_token_id", "skip_tokenizer_init", "max_total_tokens", "prompt_tokens",
        "cached_tokens", "total_tokens", "stop_token_ids", "prompt_token_ids", "token_ids",
        "kv_cache_dtype", "key", "keys", "tokens", "cache_key", "prompt_cache_key", "last_token",
        "api_key_env", "enable_token_usage", "token_usage", "kv_cache_size_tokens",
        "num_reserved_decode_tokens", "speculative_token_map", "speculative_num_draft_tokens", "monkey",
        "turkey",
    ],
)  # fmt: skip
def test_innocent_names(name: str) -> None:
    assert secret_name(name) in ("", "weak")
    body = json.dumps({name: 681280}).encode()
    assert Redactor().body(body) == (body, ())


@pytest.mark.parametrize(
    "path",
    sorted(path for path in servers.PAYLOADS.rglob("*.*") if path.is_file()),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_recorded_payloads_lose_nothing_but_their_fake_keys(path: Path) -> None:
    """Every recorded answer comes through byte for byte, except where a key stands in it."""
    body = (
        path.read_bytes()
        if path.suffix != ".http"
        else servers.recorded(f"{path.parent.name}/{path.name}").body
    )
    clean, exposed = Redactor().body(body)
    if b"SECRET" in body:
        assert b"SECRET" not in clean
        assert exposed
    else:
        assert clean == body
        assert exposed == ()


def test_server_info_of_sglang() -> None:
    """The four fields of sglang.md 1.7, at the top and inside internal_states."""
    document = {
        "api_key": SECRET,
        "admin_api_key": None,
        "ssl_keyfile": "/etc/tls/key.pem",
        "ssl_keyfile_password": "opensesame",
        "launch_command": f"python -m sglang.launch_server --model-path m --tp 2 --api-key {SECRET} --port 3",
        "max_total_num_tokens": 681280,
        "internal_states": [{"api_key": SECRET, "page_size": 64}],
    }
    clean, exposed = Redactor().body(json.dumps(document).encode())
    assert set(exposed) == {"api_key", "ssl_keyfile_password", "launch_command"}
    read = json.loads(clean)
    assert read["api_key"] == read["internal_states"][0]["api_key"] == "[redacted]"
    assert read["admin_api_key"] is None
    assert read["ssl_keyfile"] == "/etc/tls/key.pem"
    assert read["launch_command"].startswith(
        "python -m sglang.launch_server --model-path m --tp 2 --api-key [red"
    )
    assert read["launch_command"].endswith("--port 3")
    assert (read["max_total_num_tokens"], read["internal_states"][0]["page_size"]) == (681280, 64)


@pytest.mark.parametrize(
    "body",
    [
        '{"api_key": "%s"}',
        '{"api_key" : "%s", "api_key": null}',
        '{"api\\u005fkey": "%s"}',
        '{"x": {"y": [{"apiKey": "%s"}]}}',
        '{"api_keys": ["%s", "other-key-value"]}',
        '{"argv": ["serve", "--api-key", "%s"]}',
        '{"argv": ["serve", "--api-key=%s"]}',
        '{"cmd": "serve --admin-api-key \\"%s\\" --tp 2"}',
        '{"cmd": "serve --hf-token=%s"}',
        '{"cmd": "serve --trust-remote-code --api-key %s"}',
        "serve --trust-remote-code --api-key %s",
        "Args(tokenizer_args=\"api_key='%s'\")",
        '{"keys": {"tokenizer": "api_key=\'%s\'"}}',
        '{"extra": "{\\"api_key\\": \\"%s\\"}"}',
        '{"env": "HF_TOKEN=%s PATH=/bin"}',
        '{"repr": "ServerArgs(api_key=\'%s\', tp_size=2)"}',
        '{"h": "Authorization: Bearer %s"}',
        '{"u": "redis://user:%s@cache:6379/0"}',
        '{"pool": NaN, "api_key": "%s"}',
        '{"pool": 1000000000000000000000000000000, "api_key": "%s"}',
        '{"api_key": "%s", "cut": [1, 2',
        '{"api_key": "%s',
        'info{api_key="%s",tp="2"} 1.0',
        "api_key: %s",
        "API_KEY=%s",
        "<p>Authorization: Bearer %s</p>",
        "ServerArgs(api_key='%s')",
    ],
)
@pytest.mark.parametrize("secret", [SECRET, "plainwordkey", "Zm9vYmFyYmF6cXV4"])
def test_secrets_in_every_wrapping(body: str, secret: str) -> None:
    clean, exposed = Redactor().body((body % secret).encode())
    assert secret.encode() not in clean
    assert exposed


def test_numbers_beside_a_secret_stay_exact() -> None:
    clean, _ = Redactor().body(b'{"api_key": "abcdef123", "big": 1000000000000000000000000000001}')
    assert json.loads(clean)["big"] == 10**30 + 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage": {"prompt_tokens": 2047, "prompt_tokens_details": {"cached_tokens": 0}}}',
        b'{"choices": [{"logprobs": {"content": [{"token": "internationally", "logprob": -0.1}]}}]}',
        b'{"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}',
        b'{"api_key": null, "admin_api_key": "", "password": "***"}',
        b'{"properties": {"api_key": {"type": "string", "title": "Api Key"}}}',
        b'# HELP vllm:time_per_output_token Time per output token: histogram\nvllm:x{le="0.1"} 3\n',
        b'{"error": {"message": "You passed 2049 input tokens and requested 1 output tokens", "code": 400}}',
        b'vllm:cache_config_info{kv_cache_size_tokens="1048464",prefix_caching_hash_algo="sha256"} 1',
        b'{"text": "the key to the house is under the token: mat"}',
    ],
)
def test_innocent_bodies_come_back_byte_for_byte(body: bytes) -> None:
    assert Redactor().body(body) == (body, ())


@pytest.mark.parametrize(
    "body", ['{"note": "got %s"}', "got %s", '{"%s": 1}', 'x{a="%s"} 1', '{"note": "Bearer %s."}', '["%s"]']
)
@pytest.mark.parametrize("own", ["our-own-key-1", 'quote"and\\slash', "pässword-öwn"])
def test_our_own_key_never_comes_back(body: str, own: str) -> None:
    escaped = json.dumps(own)[1:-1]
    for spelling in {own, escaped}:
        clean, exposed = Redactor([own]).body((body % spelling).encode())
        assert own.encode() not in clean
        assert escaped.encode() not in clean
        assert exposed == ("the key sent with the request",) or exposed


def test_more_names_than_are_spelled_out() -> None:
    pairs = ", ".join(f"service{at}_password='s3cret-{at}', num_tokens='{at}'" for at in range(200))
    clean, exposed = Redactor().body(f"Args({pairs})".encode())
    assert b"s3cret-" not in clean
    assert clean.count(b"num_tokens='") == 200
    assert len(exposed) == 200


def test_own_key_inside_a_longer_word_is_left_alone() -> None:
    body = b'{"model": "latest"}'
    assert Redactor(["test"]).body(body) == (body, ())


def test_deep_nesting_is_survived() -> None:
    deep = b'{"a":' * 3000 + b'{"api_key":"abcdef123"}' + b"}" * 3000
    clean, _ = Redactor().body(deep)
    assert b"abcdef123" not in clean


def many_names(strings: int) -> bytes:
    """Names that differ from string to string: patterns made of them cost half a minute a megabyte."""
    return json.dumps(
        [
            " ".join(f"svc{at}{letter}_password='s3cret-{at}'" for letter in "abcdefgh")
            for at in range(strings)
        ]
    ).encode()


def test_many_names_are_redacted() -> None:
    clean, exposed = Redactor().body(many_names(50))
    assert b"s3cret-" not in clean
    assert exposed


def test_a_body_of_nothing_but_names_of_secrets_is_given_up() -> None:
    with pytest.raises(TooManySecrets, match=r"more fields that look like secrets.*\.$") as given_up:
        Redactor().body(many_names(5_000))
    assert "s3cret" not in str(given_up.value)


def test_free_text_of_too_many_secrets_is_withheld() -> None:
    assert (
        redact_text("api_key='s3cret-value' " * 200_000)
        == "[withheld: it holds too much that looks like a secret]"
    )


def test_text() -> None:
    assert redact_text(f"could not send --api-key {SECRET}") == "could not send --api-key [redacted]"
    assert redact_text("nothing to hide: 681280 tokens") == "nothing to hide: 681280 tokens"


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(body: bytes) -> None:
    clean, exposed = Redactor(["own-secret"]).body(body)
    assert isinstance(clean, bytes)
    assert isinstance(exposed, tuple)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from(["api_key", "hf_token", "ssl_keyfile_password", "client-secret"]),
)
def test_a_named_secret_never_survives_beside_anything(document: object, name: str) -> None:
    body = json.dumps({"other": document, "deep": [{name: "V3ry-S3cret-Value"}]}).encode()
    clean, exposed = Redactor().body(body)
    assert b"V3ry-S3cret-Value" not in clean
    assert name in exposed


def test_an_event_without_anything_suspect_is_the_very_same_string() -> None:
    redactor = Redactor(["plainsecret", "Bearer plainsecret", "sk-a-longer-secret"])
    ordinary = '{"choices":[{"text":" a broken bypass"}]}'
    assert redactor.event(ordinary) is ordinary
    for said in ("plainsecret", "sk-a-longer-secret", "Bearer plainsecret", "\\u0070lainsecret"):
        clean = redactor.event('{"choices":[{"text":" ' + said + '"}]}')
        assert "secret" not in clean, said
