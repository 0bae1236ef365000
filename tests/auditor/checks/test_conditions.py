"""Conditions computed from the nodes."""

import pytest

from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.checks.version.conditions import answers_for
from tests.auditor.checks.audits import CONTEXT, audit, node

AUTO, FP8 = {"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8"}
POOL, DTYPE = "prefill_pool<context_length", "kv_cache_dtype_mismatch"


@pytest.mark.parametrize(
    ("nodes", "condition", "expected"),
    [
        ((node("prefill", 681_280),), POOL, True),
        ((node("prefill", CONTEXT),), POOL, False),
        ((node("prefill", None),), POOL, None),
        ((node("prefill", 681_280), node("prefill", None, name="b")), POOL, True),
        ((node("prefill", 2_000_000), node("prefill", None, name="b")), POOL, None),
        ((node("prefill", 2_000_000, None),), POOL, None),
        ((node("decode", 681_280),), POOL, None),
        ((node("prefill", 600_000), node("decode", 700_000)), "decode_pool>prefill_pool", True),
        ((node("prefill", 700_000), node("decode", 700_000)), "decode_pool>prefill_pool", False),
        ((node("prefill", 700_000),), "decode_pool>prefill_pool", None),
        ((node("unified", 681_280),), "pool<context_length", True),
        ((node("unified"),), "pool<context_length", False),
        ((node("prefill", settings=AUTO), node("decode", settings=FP8)), DTYPE, True),
        ((node("prefill", settings=FP8), node("decode", settings=FP8)), DTYPE, False),
        ((node("prefill"), node("decode", settings=FP8)), DTYPE, None),
        ((node("prefill"),), "pd_disaggregation", True),
        ((node("unified"),), "pd_disaggregation", False),
        ((node(""),), "pd_disaggregation", None),
        ((node("", declared="decode"),), "pd_disaggregation", True),
        ((node("prefill", settings={"hicache_storage_backend": "mooncake"}),), "mooncake_store", True),
        ((node("prefill", settings={"hicache_storage_backend": "file"}),), "mooncake_store", False),
        ((node("prefill", conditions={"hicache": False}),), "mooncake_store", False),
        ((node("prefill"),), "mooncake_store", None),
        ((node("", engine="vllm", version="0.32.0"),), "nixl", False),
        ((node("", engine="vllm", version="0.10.2"),), "nixl", None),
        ((node("", engine="vllm", version="0.32.0", components={"nixl": ""}),), "nixl", None),
        ((node("", None, engine="vllm", version="0.32.0"),), "nixl", None),
        ((node("prefill"),), "never heard of", None),
    ],
)  # fmt: skip
def test_computed(nodes, condition, expected):
    assert answers_for(nodes[0], audit(*nodes))(condition) is expected


@pytest.mark.parametrize(
    ("read", "declared", "expected"),
    [
        (None, None, None),
        (True, False, True),
        (False, True, True),
        (False, None, False),
        (None, False, False),
    ],
)
def test_anyone_may_raise_and_all_must_agree_to_clear(read, declared, expected):
    given = node("unified", conditions={} if read is None else {"lora": read})
    rules = Rules(conditions={} if declared is None else {"lora": declared})
    assert answers_for(given, audit(given, rules=rules))("lora") is expected


def test_a_declared_context_counts_where_it_is_larger():
    given = node("prefill", 2_000_000)
    assert answers_for(given, audit(given, rules=Rules(context=3_000_000)))(POOL) is True
