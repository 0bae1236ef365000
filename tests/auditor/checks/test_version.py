"""Pins and advisories against nodes: policy, facts, doubts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.advisories.pins import parse_pin
from kvaudit.auditor.advisories.versions import parse_build
from kvaudit.auditor.checks import get
from kvaudit.auditor.checks.contract import NodeSeen, Rules
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.audits import audit, node, silent
from tests.auditor.checks.test_pool import replayed
from tests.auditor.engines import payloads

PASS, FAIL, INCONCLUSIVE, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR


def judge(*nodes, **more):
    return get("version").judge(None, audit(*nodes, **more))


def outcomes(result):
    return {
        advisory["id"]: advisory["outcome"]
        for build in result.measures["builds"]
        for advisory in build["advisories"]
    }


@pytest.mark.parametrize(
    ("version", "verdict", "said"),
    [
        ("0.5.22", PASS, "satisfies its pin"),
        ("0.5.23", PASS, "satisfies its pin"),
        ("0.5.22.post1", PASS, ""),
        ("0.5.22-1", PASS, ""),
        ("0.5.21", FAIL, "outside the pin sglang >=0.5.22"),
        ("0.5.22rc1", FAIL, "outside the pin"),
        ("0.5.19", FAIL, "outside the pin"),
        ("0.5.21.dev9", FAIL, "outside the pin"),
        ("0.5.22.dev9", INCONCLUSIVE, "may or may not satisfy"),
        ("0.5.23.dev9+g680bd4b", INCONCLUSIVE, "development build"),
        ("0.5.22+acme.7", INCONCLUSIVE, "vendor's build"),
        ("0.5.19+acme.7", FAIL, "outside the pin"),  # policy is about the number
        ("0.0.0.dev1+gdce8b0606", INCONCLUSIVE, "means nothing"),
        ("0.3.2.dev9646+pr.18598.gfec757fd3", INCONCLUSIVE, "means nothing"),
        ("nightly-dev-20260107-dce8b060", INCONCLUSIVE, "moving tag"),
        ("kimi-k3", INCONCLUSIVE, "no version"),
        (None, INCONCLUSIVE, "not known"),
        ("26.8", INCONCLUSIVE, "counts years"),
        ("1.4.2", INCONCLUSIVE, "far above 0.5.23"),
        ("0.5.24", PASS, "satisfies its pin"),
    ],
)
def test_unified_sglang_by_version(version, verdict, said):
    result = judge(
        node("unified", version=version, conditions={"pd_disaggregation": False, "hicache_storage": False})
    )
    assert result.verdict is verdict, result.summary
    assert said in result.summary


@pytest.mark.parametrize(
    ("engine", "pins", "verdict"),
    [
        ("vllm", ("sglang>=0.5.22",), PASS),  # a pin for another engine does not apply
        ("vllm", ("vllm>=0.33",), FAIL),
        ("vllm", ("vllm>=0.29.0", "vllm<0.32"), FAIL),
        ("vllm", ("vllm~=0.32.0",), PASS),
        ("vllm", ("nonsense",), ERROR),
        ("vllm", (), PASS),
    ],
)
def test_pins(engine, pins, verdict):
    result = judge(node("unified", version="0.32.0", engine=engine), rules=Rules(pins=pins))
    assert result.verdict is verdict, result.summary


def test_a_release_just_above_all_data_warns():
    quiet = {"pd_disaggregation": False, "hicache_storage": False}
    newer, known = (
        judge(node("unified", version=version, conditions=quiet)) for version in ("0.5.24", "0.5.23")
    )
    said = "newer than 0.5.23, the newest release"
    assert any(said in warning for warning in newer.measures["warnings"])
    assert not any(said in warning for warning in known.measures["warnings"])


def test_a_component_far_above_all_data_is_undecided():
    quiet = {"hybrid_kv": False, "lora": False, "nixl": False}
    given = node("unified", version="0.28.0", engine="vllm", components={"lmcache": ""}, conditions=quiet)
    found = outcomes(judge(given, rules=Rules(components={"lmcache": "26.8"})))
    assert found["KVA-032"] == "undecided"


class TestTheIncident:
    def pair(self, version="0.5.19", prefill=681_280):
        return (
            node("prefill", prefill, version=version, conditions={"ascend_npu": False}),
            node("decode", 1_412_544, version=version, conditions={"ascend_npu": False}),
        )

    def test_affected_build_with_its_conditions_met(self):
        result = judge(*self.pair())
        assert (result.verdict, result.severity) == (FAIL, "critical")
        assert "KVA-001" in result.summary
        assert outcomes(result)["KVA-001"] == "applies"
        assert "enlarge the prefill pool" in result.next

    def test_an_affected_build_whose_pool_holds_the_context_is_spared_that_one(self):
        found = outcomes(judge(*self.pair(prefill=2_040_000)))
        assert "KVA-001" not in found
        assert found["KVA-004"] == "applies"  # aborts under load are traffic that any server sees

    def test_decode_alone_cannot_tell_the_prefill_pool(self):
        result = judge(self.pair()[1])
        assert outcomes(result)["KVA-001"] == "undecided"

    @pytest.mark.parametrize("version", ["0.5.20", "0.5.22"])
    def test_the_fix_clears_it(self, version):
        assert "KVA-001" not in outcomes(judge(*self.pair(version)))

    def test_it_is_never_claimed_that_counts_are_verified(self):
        assert "No release read" in judge(*self.pair("0.5.22")).does_not_prove


@pytest.mark.parametrize(
    ("engine", "served"),
    [
        ("sglang", payloads.sglang_single_0_5_22),
        ("sglang", payloads.sglang_prefill_0_5_22),
        ("sglang", payloads.sglang_decode_0_5_22),
        ("vllm", payloads.vllm_recorded),
    ],
)
def test_healthy_releases_can_pass(engine, served):
    result = judge(replayed(engine, served()))
    assert result.verdict is PASS, result.summary
    assert "That is not evidence of isolation." in result.summary
    assert result.warn  # advisories without a range are listed
    assert set(outcomes(result).values()) == {"possible"}


def test_nixl_is_undecided_until_its_lease_is_declared():
    nixl = replayed("vllm", payloads.vllm_nixl())
    result = judge(nixl)
    assert result.verdict is INCONCLUSIVE
    assert "nixl_lease_can_expire" in result.next
    declared = Rules(conditions={"nixl_lease_can_expire": False, "hybrid_kv": False})
    assert judge(nixl, rules=declared).verdict is PASS
    assert judge(nixl, rules=Rules(conditions={"nixl_lease_can_expire": True})).verdict is FAIL


class TestConditions:
    QUIET = {"pd_disaggregation": False, "multimodal": False}

    @pytest.mark.parametrize(
        ("read", "declared", "expected"),
        [
            ({}, {}, "undecided"),
            ({}, {"hicache_storage": True}, "applies"),
            ({}, {"hicache_storage": False}, None),
            ({"hicache_storage": True}, {}, "applies"),
            ({"hicache_storage": False}, {}, None),
            (
                {"hicache_storage": True},
                {"hicache_storage": False},
                "applies",
            ),  # the process outweighs the operator
        ],
    )
    def test_read_or_declared(self, read, declared, expected):
        given = node("unified", version="0.5.18", conditions={**self.QUIET, **read})
        result = judge(given, rules=Rules(pins=(), conditions=declared))
        assert outcomes(result).get("KVA-053") == expected
        assert result.verdict is {"applies": FAIL, "undecided": INCONCLUSIVE, None: PASS}[expected]

    def test_a_component_version_may_be_declared(self):
        quiet = {"hybrid_kv": False, "lora": False, "nixl": False}
        seen = {"lmcache": ""}
        given = node("unified", version="0.28.0", engine="vllm", components=seen, conditions=quiet)
        assert outcomes(judge(given))["KVA-032"] == "undecided"
        assert outcomes(judge(given, rules=Rules(components={"lmcache": "0.5.2"})))["KVA-032"] == "applies"
        assert "KVA-032" not in outcomes(judge(given, rules=Rules(components={"lmcache": "0.5.6"})))


class TestFeatures:
    def test_an_unknown_version_is_corroborated_not_cleared(self):
        result = judge(node("unified", version="0.0.0.dev1", features={"attn_dp_size": True}))
        assert result.verdict is INCONCLUSIVE
        assert "features of 0.5.22" in result.summary
        assert "does not show that a fix is in it" in result.summary

    def test_a_version_denied_by_its_features_is_not_believed(self):
        result = judge(node("unified", version="0.5.22", features={"cuda_graph_max_bs": True}))
        assert result.verdict is INCONCLUSIVE
        assert "cuda_graph_max_bs (until 0.5.18)" in result.summary

    def test_absent_features_are_said(self):
        features = {"attn_dp_size": True, "frontend": False}
        result = judge(node("unified", version="0.5.22", features=features))
        assert (result.verdict, result.warn) == (PASS, True)
        assert any("frontend" in warning for warning in result.measures["warnings"])

    @pytest.mark.parametrize(
        ("engine", "version", "features"),
        [
            ("sglang", "0.5.22", {"frontend": True, "attn_dp_size": False}),
            ("vllm", "0.30.0", {"kv_cache_size_tokens": False, "prompt_tokens_by_source": True}),
            ("vllm", "0.33.0", {"prompt_tokens_cached_by_source": False}),
        ],
    )
    def test_a_release_without_what_it_must_show_is_not_believed(self, engine, version, features):
        result = judge(node("unified", engine=engine, version=version, features=features))
        assert result.verdict is INCONCLUSIVE
        assert "lacks what its release shows" in result.summary
        assert "address of its own" in result.next

    def test_another_node_does_not_lend_its_features(self):
        shows, lacks = (
            node("unified", name=name, features={"attn_dp_size": seen})
            for name, seen in (("a", True), ("b", False))
        )
        assert judge(shows, lacks).verdict is INCONCLUSIVE


class TestCoverage:
    @pytest.mark.parametrize(
        ("nodes", "more", "verdict", "said"),
        [
            ((), {}, INCONCLUSIVE, "no node was given"),
            ((silent(),), {}, ERROR, "connection refused"),
            ((node("unified"), silent()), {}, ERROR, "connection refused"),
            ((node("unified", version="0.5.19"), silent()), {}, FAIL, "outside the pin"),
            ((node("prefill"),), {"complete": True}, INCONCLUSIVE, "no decode node"),
            (
                (NodeSeen("r", "http://r", facts=EngineFacts("sglang", kind="router")),),
                {},
                INCONCLUSIVE,
                "router",
            ),
            ((node("unified", version=None), node("unified", name="b")), {}, INCONCLUSIVE, "not known"),
        ],
    )
    def test_what_was_not_read(self, nodes, more, verdict, said):
        result = judge(*nodes, **more)
        assert result.verdict is verdict
        assert said in result.summary.lower()

    def test_equal_builds_are_one_entry(self):
        result = judge(
            node("unified", name="a"), node("unified", name="b"), node("unified", name="c", version="0.5.23")
        )
        assert [build["nodes"] for build in result.measures["builds"]] == [["a", "b"], ["c"]]


@given(
    st.one_of(
        st.none(),
        st.text(max_size=20),
        st.from_regex(r"v?0\.[0-9]{1,2}\.[0-9]{1,2}(rc1|\.post1|\.dev7|\+acme)?", fullmatch=True),
    )
)
def test_a_pass_needs_a_release_that_the_pin_allows(version):
    result = judge(node("unified", version=version if version and version.strip() else None))
    json.dumps(result.as_report(), allow_nan=False)
    if result.verdict is PASS:
        build = parse_build(version)
        assert build.kind in ("release", "candidate")
        assert parse_pin("sglang>=0.5.22").allows(build) is True


def test_results_are_plain_json():
    for nodes in ((), (node("prefill", 681_280, version="0.5.19"),), (silent(),)):
        json.dumps(judge(*nodes).as_report(), allow_nan=False)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (Rules(conditions={"hicache_storrage": False}), "did you mean hicache_storage?"),
        (Rules(components={"lm-cache": "0.5.2"}), "did you mean lmcache?"),
        (Rules(pins=("sglang>=0.5.22", "sglnag>=0.5.99")), "the pin sglnag >=0.5.99 is for no engine"),
    ],
)
def test_stored_names_that_decide_nothing_are_warned_of(rules, said):
    """Where they are given they are refused; these were stored by the release before."""
    quiet = {"pd_disaggregation": False, "hicache_storage": False}
    result = judge(node("unified", version="0.5.22", conditions=quiet), rules=rules)
    assert result.warn
    assert any(said.lower() in warning.lower() for warning in result.measures["warnings"]), result.measures[
        "warnings"
    ]
