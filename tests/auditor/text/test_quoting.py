"""What could be a key is never repeated; names, versions, addresses and misspellings are."""

from __future__ import annotations

import pytest

from kvaudit.auditor.text.quoting import HIDDEN, could_be_key, quoted, without_keys

KEYS = (
    "sk-live-4f9a8b7c6d5e4f3a",
    "sk-secret-1",
    "sk-tenant-a",
    "hf_abcdefghijklmnopqrstuvwx",
    "nvapi-AbCdEf0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "hunter2hunter2",
    "Password1234",
    "P@ssw0rd!",
    "correct-horse-key-9",
    "tenant-key-a",
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "d41d8cd98f00b204e9800998ecf8427e",
    "qwertzuiopasdfghjklyxcvbnm",
    "aGVsbG8gd29ybGQxMjM0NTY3ODk=",
    "kXq9-Lm2P-77Zt-Rw4e",
    "A1B2C3D4E5F6G7H8",
    "https://user:pass@host",
    "KEY_A=sk-live-4f9a8b7c",
    "api==4f9a8b7c6d5e4f3a",
    "x=4f9a8b7c6d5e4f3a",
    "--api-key-env=sk-live-4f9a8b7c",
    "http://host/path?k=4f9a8b7c6d5e4f3a",
)
NAMES = (
    "prefill-0",
    "glm-5-prod",
    "node-h200-017",
    "http://10.0.0.1:30000",
    "https://gateway.example.org/v1",
    "ip-10-0-3-17.eu-central-1.compute.internal",
    "sglang>=0.5.22",
    "sglnag>=0.5.99",
    "python>=3.12",
    "vllm!=0.5.*",
    "sglang",
    "hicache_storrage",
    "SSD_offload",
    "mooncake-transfer-engine",
    "prefill_pool<context_length",
    "disaggregation_decode_host_receive_threshold",
    "1_048_576",
    "2026-12-01",
    "Europe/Berlin",
    "PREFILL_KEY",
    "GLM_PROD_TENANT_A_KEY",
    "x-api-key",
    "api_key",
    "Authorization",
    "headers_env",
    "kvaudit.fleet/1",
    "on-call@example.org",
    "TensorRT-LLM",
    "deployments",
    "0.5.19.post1+cu129",
    "*/15",
    "http://sglang-prefill-7d9f8b6c5d-x2k4p.ns.svc:30000/v1",
    "/tmp/tmpab12cd34ef/fleet.yaml",
    "--tenant-a-key-env",
)


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_not_repeated(key: str) -> None:
    for text in (key, f"role {key!r} is unknown", f"{{{key}}}", f'"{key}",'):
        assert key not in without_keys(text)
    assert quoted(key) == HIDDEN
    assert quoted(f"some words and {key}") == HIDDEN


@pytest.mark.parametrize("name", NAMES)
def test_names_are(name: str) -> None:
    assert not could_be_key(name)
    assert quoted(name, longest=80) == repr(name)
    assert without_keys(f"role {name!r} is unknown; did you mean prefill?").count(name) == 1


def test_a_named_value_is_not_repeated() -> None:
    assert "swordfish" not in without_keys("the line says api_key: swordfish")
    assert "swordfish" not in without_keys("Authorization: Bearer swordfish-x")


def test_long_text_is_cut() -> None:
    assert quoted("word " * 30) == repr(("word " * 30)[:37] + "...")
