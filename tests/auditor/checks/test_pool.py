"""The pool check, by tables: what passes, what fails and how badly, what cannot be told."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.checks import get
from kvaudit.auditor.checks.contract import Audit, History, NodeSeen, Rules
from kvaudit.auditor.checks.pool.numbers import times_context
from kvaudit.auditor.readings import EngineFacts, RankPool, Worker, derived, read, unknown
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.audits import CONTEXT, audit, node, silent
from tests.auditor.engines import payloads

PASS, FAIL, INCONCLUSIVE, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR
REQUIRED = math.ceil(1.25 * CONTEXT)
SEEN_REFUSING = History(edge_limit_seen_refusing=True)


def judge(*nodes, **more):
    return get("pool").judge(None, audit(*nodes, **more))


def replayed(engine, served, name="node-0"):
    from kvaudit.auditor import engines

    facts = engines.get(engine).facts(payloads.answers(served))
    return NodeSeen(name=name, url=f"http://{name}:1", facts=facts)


def incident():
    return (
        node("prefill", 681_280, version="0.5.19"),
        node("decode", 1_412_544, version="0.5.19"),
    )


class TestTheIncident:
    def test_pair_fails_and_names_the_danger_zone(self):
        result = judge(*incident())
        assert (result.verdict, result.severity) == (FAIL, "critical")
        assert result.measures["danger_zone"] == [681_274, 1_048_570]
        assert "prompts of 681,274 to 1,048,569 tokens reach the rejection path that leaks" in result.summary
        assert "one prefill and one decode node" in result.summary
        assert result.measures["pool_tokens"] == 681_280
        assert result.measures["context_tokens"] == CONTEXT
        assert result.measures["reachable_tokens"] == 681_280
        assert result.measures["full_context_requests"] == 0
        assert result.measures["required_tokens"] == REQUIRED
        assert result.measures["missing_tokens"] == REQUIRED - 681_280

    def test_prefill_alone_is_measured_against_the_context(self):
        result = judge(incident()[0])
        assert (result.verdict, result.severity) == (FAIL, "critical")
        assert result.measures["danger_zone"] == [681_274, CONTEXT]
        assert "decode was not given" in result.summary
        assert "decode could not be read" in judge(incident()[0], silent()).summary

    def test_recorded_shapes(self):
        prefill = replayed("sglang", payloads.sglang_prefill_0_5_19(), "prefill-0")
        decode = replayed("sglang", payloads.sglang_decode_0_5_19(), "decode-0")
        assert judge(prefill, decode).measures["danger_zone"] == [681_274, 1_048_570]

    def test_enlarged_pair_passes(self):
        result = judge(node("prefill"), node("decode"), complete=True)
        assert result.verdict is PASS
        assert not result.warn
        assert result.measures["danger_zone"] is None
        assert result.measures["full_context_requests"] == 1
        assert "1.94 times" in result.summary


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.5.19", "critical"),
        ("0.5.20rc1", "critical"),
        ("0.5.20", "high"),  # the lengths are still refused, but nothing leaks
        ("0.5.22", "high"),
        ("0.5.20.dev7", "critical"),  # unknown builds count as affected
        ("0.0.0.dev1", "critical"),
        (None, "critical"),
        ("0.5.19+acme.1", "critical"),
        ("0.5.22+acme.1", "high"),
    ],
)
def test_severity_by_build(version, severity):
    result = judge(node("prefill", 681_280, version=version), node("decode", 2_040_000, version=version))
    assert (result.verdict, result.severity) == (FAIL, severity)


@pytest.mark.parametrize(
    ("prefill", "decode", "zone", "severity"),
    [
        (681_280, 681_280, None, "high"),  # equal pools: both sides refuse the same lengths
        (681_280, 400_000, None, "high"),
        (681_280, 900_000, [681_274, 899_994], "critical"),
        (681_280, 5_000_000, [681_274, 1_048_570], "critical"),
        (1_100_000, 1_100_000, None, "high"),  # holds the context, but not the headroom
    ],
)
def test_danger_zone_of_pairs(prefill, decode, zone, severity):
    result = judge(node("prefill", prefill, version="0.5.19"), node("decode", decode, version="0.5.19"))
    assert (result.measures["danger_zone"], result.severity) == (zone, severity)


def test_danger_zone_spans_all_pairs():
    result = judge(
        node("prefill", 681_280, name="p0", version="0.5.19"),
        node("prefill", 900_000, name="p1", version="0.5.19"),
        node("decode", 700_000, name="d0", version="0.5.19"),
        node("decode", 1_000_000, name="d1", version="0.5.19"),
    )
    assert result.measures["danger_zone"] == [681_274, 999_994]
    assert "two prefill and two decode nodes" in result.summary


def test_prefill_limit_that_only_keeps_the_margin_is_no_danger_zone():
    result = judge(node("prefill", 1_100_000, version="0.5.19"))
    assert (result.verdict, result.severity, result.measures["danger_zone"]) == (FAIL, "high", None)


def test_decode_limit_that_is_not_exposed_widens_the_zone_to_the_context():
    result = judge(node("prefill", 681_280), node("decode", 2_040_000, limit=None, engine="other"))
    assert result.measures["danger_zone"] == [681_274, CONTEXT]
    assert "decode's own limit is not exposed" in result.summary


def test_a_small_unified_node_has_no_danger_zone():
    result = judge(node("unified", 681_280, version="0.5.19"))
    assert (result.verdict, result.severity, result.measures["danger_zone"]) == (FAIL, "high", None)


def test_a_node_of_unknown_role_may_be_a_prefill_node():
    result = judge(node("", 681_280, version="0.5.19"))
    assert result.severity == "critical"
    assert "one node of unknown role" in result.summary


def test_nodes_of_unknown_role_are_measured_against_what_they_announce_themselves():
    small = node("", 200_000, 131_072, engine="vllm", limit=131_072, name="a")
    large = node("", 200_000, 190_000, engine="vllm", limit=190_000, name="b")
    result = judge(small, large)
    assert (result.verdict, result.severity, result.measures["danger_zone"]) == (FAIL, "high", None)
    one = judge(
        node("", 681_280, version="0.5.19", name="a"), node("", 2_040_000, version="0.5.19", name="b")
    )
    assert (one.severity, one.measures["danger_zone"]) == ("critical", [681_274, CONTEXT])


@pytest.mark.parametrize(
    ("pool", "verdict"),
    [
        (REQUIRED - 1, FAIL),
        (REQUIRED, PASS),
        (REQUIRED + 1, PASS),
        (CONTEXT, FAIL),
        (None, INCONCLUSIVE),
        (unknown("GET /v1/loads max_total_num_tokens is 0"), INCONCLUSIVE),
        (derived(REQUIRED, "blocks x size"), PASS),
        (derived(REQUIRED, "blocks x size: low confidence"), INCONCLUSIVE),  # an upper bound proves nothing
        (derived(REQUIRED - 1, "blocks x size: low confidence"), FAIL),  # but may disprove
    ],
)
def test_headroom(pool, verdict):
    assert judge(node("unified", pool)).verdict is verdict


@pytest.mark.parametrize(
    ("headroom", "pool", "verdict"),
    [
        (1.0, CONTEXT, PASS),
        (1.0, CONTEXT - 1, FAIL),
        (1.1, 1_153_434, PASS),
        (1.1, 1_153_433, FAIL),
        (2, 2 * CONTEXT, PASS),
        (0.99, 10 * CONTEXT, ERROR),
        (float("nan"), 10 * CONTEXT, ERROR),
        (float("inf"), 10 * CONTEXT, ERROR),
        (True, 10 * CONTEXT, ERROR),
        (-1.25, 10 * CONTEXT, ERROR),
    ],
)
def test_headroom_is_a_rule(headroom, pool, verdict):
    result = judge(node("unified", pool), rules=Rules(headroom=headroom))
    assert result.verdict is verdict
    json.dumps(result.as_report(), allow_nan=False)


class TestRanks:
    """A request lives on one rank: the minimum counts, never the sum."""

    def test_the_smallest_rank_decides(self):
        assert judge(node("unified", REQUIRED, ranks=(REQUIRED, REQUIRED - 1))).verdict is FAIL
        assert judge(node("unified", REQUIRED, ranks=(REQUIRED, REQUIRED))).verdict is PASS

    def test_one_silent_rank_is_inconclusive(self):
        assert judge(node("unified", REQUIRED, ranks=(REQUIRED, None))).verdict is INCONCLUSIVE

    def test_an_adapter_that_doubts_the_pool_is_believed(self):
        assert judge(node("unified", None, ranks=(REQUIRED,))).verdict is INCONCLUSIVE

    def test_a_sliding_window_pool_counts(self):
        small = RankPool("0", read(2_040_000, "a"), read(150_000, "b"))
        given = node("unified", 2_040_000)
        given = replace(given, facts=replace(given.facts, ranks=(small,)))
        assert judge(given).measures["pool_tokens"] == 150_000
        silent_window = RankPool("0", read(2_040_000, "a"), unknown("b is null"))
        given = replace(given, facts=replace(given.facts, ranks=(silent_window,)))
        assert judge(given).verdict is INCONCLUSIVE

    def test_full_requests_are_counted_over_ranks(self):
        result = judge(node("unified", 2_100_000, ranks=(2_100_000, 2_200_000)))
        assert result.measures["full_context_requests"] == 4


@pytest.mark.parametrize(
    ("read_context", "declared", "expected", "verdict"),
    [
        (CONTEXT, None, CONTEXT, PASS),
        (CONTEXT, 2_000_000, 2_000_000, FAIL),  # the larger of the two counts
        (CONTEXT, 4_096, CONTEXT, PASS),
        (None, None, None, INCONCLUSIVE),
        (None, CONTEXT, CONTEXT, PASS),
    ],
)
def test_context_is_the_larger_of_read_and_declared(read_context, declared, expected, verdict):
    result = judge(node("unified", 2_040_000, read_context, limit=None), rules=Rules(context=declared))
    assert (result.measures["context_tokens"], result.verdict) == (expected, verdict)
    if verdict is PASS and read_context is None:
        assert result.warn  # a declared number is not what the process says


def test_a_pair_shares_the_larger_context():
    """Clients see one entry: a prompt that decode's side accepts must fit on prefill as well."""
    result = judge(node("prefill", 900_000, 600_000), node("decode", 2_040_000, CONTEXT))
    assert result.verdict is FAIL
    assert result.measures["context_tokens"] == CONTEXT


def test_unified_replicas_are_measured_against_their_own_context():
    small, large = node("unified", 50_000, 32_768, name="a"), node("unified", 200_000, 131_072, name="b")
    assert judge(small, large).verdict is PASS


class TestEdgeLimit:
    """The cheaper design: a small pool and an explicit refusal at the edge."""

    RULES = Rules(edge_limit=500_000)

    @pytest.mark.parametrize(
        ("history", "verdict", "said"),
        [
            (None, INCONCLUSIVE, "history not consulted"),
            (History(), INCONCLUSIVE, "has not been seen refusing"),
            (SEEN_REFUSING, PASS, "500,000"),
        ],
    )
    def test_it_counts_once_seen_refusing(self, history, verdict, said):
        result = judge(node("unified", 681_280), rules=self.RULES, history=history)
        assert result.verdict is verdict
        assert said in result.summary

    def test_a_pool_below_the_edge_fails_whatever_was_seen(self):
        assert judge(node("unified", 600_000), rules=self.RULES, history=SEEN_REFUSING).verdict is FAIL

    def test_it_is_not_needed_where_the_whole_context_fits(self):
        assert judge(node("unified", 2_040_000), rules=self.RULES).verdict is PASS

    def test_an_edge_above_the_context_changes_nothing(self):
        result = judge(node("unified", 2_040_000), rules=Rules(edge_limit=9_000_000))
        assert (result.verdict, result.measures["context_tokens"]) == (PASS, CONTEXT)

    def test_the_zone_ends_at_the_edge(self):
        rules = Rules(edge_limit=700_000)
        result = judge(*incident(), rules=rules, history=SEEN_REFUSING)
        assert result.measures["danger_zone"] == [681_274, 700_000]


class TestPairing:
    @pytest.mark.parametrize(
        ("prefill", "decode", "verdict", "said"),
        [
            ({"kv_cache_dtype": "fp8_e4m3"}, {"kv_cache_dtype": "fp8_e4m3"}, PASS, ""),
            ({"kv_cache_dtype": "bf16"}, {"kv_cache_dtype": "bfloat16"}, PASS, ""),
            ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8_e5m2"}, FAIL, "KV dtype"),
            ({"page_size": 64}, {"page_size": 1}, FAIL, "page size"),
            ({"page_size": 64}, {"page_size": None}, PASS, ""),
            ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "bfloat16"}, INCONCLUSIVE, "may be one"),
            ({"kv_cache_dtype": "auto", "dtype": "bfloat16"}, {"kv_cache_dtype": "bf16"}, PASS, ""),
            ({"kv_cache_dtype": "auto", "dtype": "float16"}, {"kv_cache_dtype": "bf16"}, FAIL, "KV dtype"),
        ],
    )
    def test_layouts(self, prefill, decode, verdict, said):
        result = judge(node("prefill", settings=prefill), node("decode", settings=decode))
        assert result.verdict is verdict
        assert said in result.summary

    def test_revisions(self):
        result = judge(node("prefill", revision=read("aaa", "x")), node("decode", revision=read("bbb", "x")))
        assert (result.verdict, result.severity) == (FAIL, "high")
        assert "model revision: aaa against bbb" in result.summary

    def test_unified_replicas_exchange_nothing(self):
        one, other = (
            node("unified", settings={"page_size": 1}, name="a"),
            node("unified", settings={"page_size": 64}, name="b"),
        )
        assert judge(one, other).verdict is PASS

    @pytest.mark.parametrize(
        ("engine", "version", "conditions", "declared", "verdict"),
        [
            ("vllm", "0.32.0", {"nixl": True}, {}, PASS),
            ("vllm", "0.11.0", {"nixl": True}, {}, FAIL),
            ("vllm", "0.12.0.dev7", {"nixl": True}, {}, INCONCLUSIVE),
            ("vllm", None, {"nixl": True}, {}, INCONCLUSIVE),
            ("vllm", "0.32.0", {}, {}, INCONCLUSIVE),
            ("vllm", "0.32.0", {"nixl": False}, {}, INCONCLUSIVE),  # another connector
            ("vllm", "0.32.0", {}, {"nixl": True}, PASS),
            ("sglang", "0.5.22", {"nixl": True}, {}, FAIL),
        ],
    )
    def test_unequal_pages_where_the_transport_converts_them(
        self, engine, version, conditions, declared, verdict
    ):
        pair = [
            node(role, engine=engine, version=version, conditions=conditions, settings={"page_size": size})
            for role, size in (("prefill", "16"), ("decode", "64"))
        ]
        result = judge(*pair, rules=Rules(conditions=declared))
        assert result.verdict is verdict, result.summary

    @pytest.mark.parametrize(
        ("first", "second", "declared", "verdict"),
        [
            # case 03: sglang#33268
            (("mooncake", "bfloat16"), ("mooncake", "fp8_e4m3"), {}, FAIL),
            (("mooncake", "fp8"), ("mooncake", "fp8_e4m3"), {}, PASS),
            (("hf3fs", "fp8_e5m2"), ("hf3fs", "fp8_e4m3"), {}, FAIL),
            (("nixl", "auto"), ("nixl", "fp8_e4m3"), {}, FAIL),
            (("mooncake", "auto"), ("mooncake", "bfloat16"), {}, INCONCLUSIVE),
            (("mooncake", None), ("mooncake", "bfloat16"), {}, INCONCLUSIVE),
            (("mooncake", "bfloat16"), ("hf3fs", "fp8_e4m3"), {}, PASS),  # two stores
            (("file", "bfloat16"), ("file", "fp8_e4m3"), {}, PASS),  # a folder of its own each
            ((None, "bfloat16"), (None, "fp8_e4m3"), {}, PASS),
            ((None, "bfloat16"), (None, "fp8_e4m3"), {"mooncake_store": True}, FAIL),
        ],
    )
    @pytest.mark.parametrize("roles", [("unified", "unified"), ("prefill", "prefill"), ("unified", "decode")])
    def test_one_store_needs_one_dtype(self, roles, first, second, declared, verdict):
        nodes = [
            node(role, name=name, settings={"hicache_storage_backend": store, "kv_cache_dtype": dtype})
            for name, role, (store, dtype) in zip("ab", roles, (first, second), strict=True)
        ]
        result = judge(*nodes, rules=Rules(conditions=declared))
        assert result.verdict is verdict, result.summary
        if verdict is FAIL:
            assert "a and b share the store" in result.summary
            assert result.severity == "high"

    @pytest.mark.parametrize(
        ("components", "declared", "verdict"),
        [
            ({"mooncake": ""}, {}, INCONCLUSIVE),  # metrics tell the connector, not whether it stores
            ({"mooncake": ""}, {"mooncake_store": False}, PASS),
            ({"mooncake": ""}, {"mooncake_store": True}, FAIL),
            ({"nixl": ""}, {}, PASS),
        ],
    )
    def test_a_component_that_may_be_a_store(self, components, declared, verdict):
        nodes = [
            node(
                "unified", engine="vllm", name=name, components=components, settings={"kv_cache_dtype": dtype}
            )
            for name, dtype in (("a", "bfloat16"), ("b", "fp8"))
        ]
        assert judge(*nodes, rules=Rules(conditions=declared)).verdict is verdict

    def test_a_store_that_is_switched_off_shares_nothing(self):
        nodes = [
            node(
                "unified",
                name=name,
                settings={"hicache_storage_backend": "mooncake", "kv_cache_dtype": dtype},
                conditions={"hicache": False},
            )
            for name, dtype in (("a", "bfloat16"), ("b", "fp8_e4m3"))
        ]
        assert judge(*nodes).verdict is PASS

    TRUNCATES = {"allow_auto_truncate": True}

    @pytest.mark.parametrize(
        ("nodes", "verdict"),
        [
            ((node("prefill", 2_040_000, settings=TRUNCATES), node("decode", 2_040_000)), PASS),
            ((node("prefill", settings=TRUNCATES, limit=900_000), node("decode")), FAIL),
            ((node("prefill"), node("decode", settings=TRUNCATES, limit=900_000)), FAIL),
            ((node("prefill", settings=TRUNCATES),), INCONCLUSIVE),
            ((node("prefill", settings=TRUNCATES, limit=None, engine="x"), node("decode")), INCONCLUSIVE),
            ((node("unified", settings=TRUNCATES),), PASS),
            ((node("prefill", settings={"allow_auto_truncate": False}, limit=900_000), node("decode")), PASS),
        ],
    )
    def test_truncation_needs_equal_limits(self, nodes, verdict):
        assert judge(*nodes).verdict is verdict


@pytest.mark.parametrize(
    ("buffer", "role", "verdict"),
    [(None, "prefill", PASS), (CONTEXT, "prefill", PASS), (2_048, "prefill", FAIL), (2_048, "unified", PASS)],
)
def test_a_declared_transfer_buffer_must_hold_the_context(buffer, role, verdict):
    assert judge(node(role), rules=Rules(disagg_buffer=buffer)).verdict is verdict


class TestCoverage:
    @pytest.mark.parametrize(
        ("nodes", "more", "verdict", "said"),
        [
            ((), {}, INCONCLUSIVE, "no node was given"),
            ((), {"complete": True}, INCONCLUSIVE, "no node was given"),
            ((node("prefill"),), {"complete": True}, INCONCLUSIVE, "no decode node"),
            ((node("decode"),), {"complete": True}, INCONCLUSIVE, "no prefill node"),
            ((node("prefill"),), {}, PASS, "one prefill node"),  # an init container gates its own node
            ((node("unified"),), {"complete": True, "expected_roles": frozenset({"unified"})}, PASS, ""),
            ((node("unified"),), {"complete": True, "expected_roles": frozenset({"decode"})}, INCONCLUSIVE, "decode"),
            ((node("prefill"), silent()), {}, ERROR, "decode-0 could not be read: connection refused"),
            ((silent(), ), {}, ERROR, "connection refused"),
            ((node("prefill", 681_280), silent()), {}, FAIL, "681,280"),  # a fail outweighs an error
            ((node("prefill", None), silent()), {}, ERROR, "connection refused"),
        ],
    )  # fmt: skip
    def test_what_was_not_read(self, nodes, more, verdict, said):
        result = judge(*nodes, **more)
        assert result.verdict is verdict
        assert said.lower() in result.summary.lower()

    def test_the_role_is_what_the_process_says(self):
        result = judge(node("decode", declared="prefill"))
        assert result.verdict is ERROR
        assert "one decode node" in result.summary
        assert "was given as prefill but says it is decode" in result.summary
        assert "Correct the role" in result.next
        both = judge(node("decode", declared="prefill"), node("decode", name="b"), complete=True)
        assert any("no prefill node" in said.lower() for said in both.measures["undecided"])

    def router(self, *workers):
        facts = EngineFacts("sglang", kind="router", workers=tuple(Worker(url) for url in workers))
        return NodeSeen("router-0", "http://router:8000", facts=facts)

    def test_a_router_is_no_node(self):
        result = judge(self.router("http://10.0.0.1:30000", "http://10.0.0.2:30000"))
        assert result.verdict is INCONCLUSIVE
        assert "give its workers: http://10.0.0.1:30000, http://10.0.0.2:30000" in result.summary

    def test_a_router_without_a_list_is_said_so(self):
        assert "give the URLs of its workers" in judge(self.router()).summary

    @pytest.mark.parametrize(("complete", "verdict"), [(False, PASS), (True, INCONCLUSIVE)])
    def test_workers_that_were_not_read(self, complete, verdict):
        given = node("unified", url="http://10.0.0.1:30000")
        result = judge(
            self.router("http://10.0.0.1:30000@1", "http://10.0.0.2:30000"), given, complete=complete
        )
        assert (result.verdict, result.warn) == (verdict, verdict is PASS)


@pytest.mark.parametrize(
    ("declared", "read", "blocks", "verdict"),
    [
        ({}, {}, 2018, INCONCLUSIVE),
        ({}, {}, 5, INCONCLUSIVE),  # too few by the product, which may be too low
        ({"hybrid_kv": False}, {}, 2018, PASS),
        ({"hybrid_kv": False}, {}, 5, FAIL),
        ({"hybrid_kv": True}, {}, 2018, INCONCLUSIVE),
        ({"hybrid_kv": False}, {"hybrid_kv": True}, 2018, INCONCLUSIVE),  # the process outweighs the operator
    ],
)
def test_blocks_of_an_old_vllm_count_only_where_no_layer_differs(declared, read, blocks, verdict):
    given = replayed("vllm", payloads.vllm_0_19(blocks))
    given = replace(given, facts=replace(given.facts, conditions={**given.facts.conditions, **read}))
    result = judge(given, rules=Rules(conditions=declared))
    assert result.verdict is verdict
    assert "refuse prompts above" not in result.next
    assert result.warn == (verdict is PASS)


def test_recorded_vllm_passes():
    result = judge(replayed("vllm", payloads.vllm_recorded()))
    assert (result.verdict, result.measures["pool_tokens"]) == (PASS, 1_048_448)
    assert result.measures["danger_zone"] is None


@pytest.mark.parametrize("served", [payloads.sglang_hidden_pool, payloads.sglang_zero_pool])
def test_hidden_and_zero_pools_never_pass(served):
    assert judge(replayed("sglang", served())).verdict is INCONCLUSIVE


def test_measures_are_those_that_others_are_written_against():
    found = judge(*incident()).measures
    assert {
        "pool_tokens", "context_tokens", "reachable_tokens", "headroom", "danger_zone", "full_context_requests",
        "nodes",
    } <= set(found)  # fmt: skip
    first = found["nodes"][0]
    assert first["pool"] == {"value": 681_280, "source": "GET /server_info", "state": "read"}
    assert (first["name"], first["role"], first["engine"], first["version"]) == (
        "prefill-0",
        "prefill",
        "sglang",
        "0.5.19",
    )
    assert first["input_limit"]["value"] == 681_274


def test_every_result_says_what_it_does_not_prove_and_what_to_do():
    for result in (judge(), judge(node()), judge(*incident()), judge(silent())):
        assert result.next
        assert "isolation" in result.does_not_prove
        assert result.summary.endswith(".")


counts = st.one_of(st.none(), st.integers(1, 10**12))
roles = st.sampled_from(["prefill", "decode", "unified", ""])


@st.composite
def nodes(draw):
    made = []
    for number in range(draw(st.integers(0, 4))):
        made.append(
            node(
                draw(roles),
                draw(counts),
                draw(counts),
                limit=draw(counts),
                version=draw(st.sampled_from(["0.5.19", "0.5.22", "junk", None])),
                engine=draw(st.sampled_from(["sglang", "vllm", "generic"])),
                ranks=tuple(draw(st.lists(counts, max_size=3))),
                name=f"n{number}",
                settings=draw(
                    st.dictionaries(
                        st.sampled_from(["page_size", "allow_auto_truncate"]), st.sampled_from([1, 64, True])
                    )
                ),
            )
        )
    if draw(st.booleans()) and draw(st.booleans()):
        made.append(silent(name="silent"))
    return made


rules = st.builds(
    Rules,
    headroom=st.sampled_from([1.0, 1.25, 2.0]),
    context=counts,
    edge_limit=counts,
    disagg_buffer=counts,
)


@given(nodes(), rules, st.booleans(), st.sampled_from([None, History(), SEEN_REFUSING]))
def test_never_a_pass_out_of_anything_unknown_or_too_small(given_nodes, given_rules, complete, history):
    asked = Audit("d", given_nodes, given_rules, history, complete)
    result = get("pool").judge(None, asked)
    json.dumps(result.as_report(), allow_nan=False)
    if result.verdict is not PASS:
        return
    assert given_nodes
    for each in given_nodes:
        facts = each.facts
        assert facts is not None
        pools = [facts.pool, *(rank.usable for rank in facts.ranks)]
        assert all(pool.known for pool in pools)
        contexts = [each for each in (facts.context.value, given_rules.context) if each is not None]
        limits = [each for each in (max(contexts, default=None), given_rules.edge_limit) if each is not None]
        assert limits, "neither a context nor an edge limit was known"
        assert min(pool.value for pool in pools) >= given_rules.headroom * min(limits)
        if contexts and given_rules.edge_limit is not None and history is not SEEN_REFUSING:
            assert min(pool.value for pool in pools) >= given_rules.headroom * max(contexts)


@pytest.mark.parametrize(
    ("pool", "context", "times"),
    [(12_499, 10_000, 1.24), (12_500, 10_000, 1.25), (115, 100, 1.15), (229, 100, 2.29), (99, 10_000, 0.0)],
)
def test_times_the_context_are_rounded_down_and_not_by_their_binary_form(pool, context, times):
    assert times_context(pool, context) == times
