"""Traits of a running engine that date its build."""

import pytest
from packaging.version import Version

from kvaudit.auditor import engines
from kvaudit.auditor.advisories.features import merged, traits
from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.advisories.versions import parse_build
from tests.auditor.engines import payloads


@pytest.mark.parametrize(
    ("version", "features", "low", "high", "denied", "absent", "lacking"),
    [
        ("0.5.22", {"attn_dp_size": True, "frontend": True}, "0.5.22", None, 0, 0, 0),
        ("0.5.22", {"attn_dp_size": False}, None, None, 0, 0, 1),
        # one of the newest release's is enough: the rest may have been taken out on the way
        ("0.5.22", {"attn_dp_size": True, "frontend": False}, "0.5.22", None, 0, 1, 0),
        ("0.5.22", {"attn_dp_size": False, "frontend": True}, "0.5.21", None, 0, 0, 1),
        ("0.5.23", {"attn_dp_size": True, "hicache_object_layout": False}, "0.5.22", None, 0, 0, 1),
        ("0.5.21.dev4", {"frontend": False}, None, None, 0, 0, 0),  # not there yet
        ("0.5.19", {"frontend": True}, "0.5.21", None, 1, 0, 0),
        ("0.5.22", {"cuda_graph_max_bs": True}, None, "0.5.18", 1, 0, 0),
        ("0.5.11", {"cuda_graph_max_bs": True}, None, "0.5.18", 0, 0, 0),
        ("0.5.20", {"/get_load": True, "/ready": True}, "0.5.20", "0.5.20", 0, 0, 0),
        ("0.5.22.dev3", {"attn_dp_size": True}, "0.5.22", None, 0, 0, 0),  # on its way there
        ("0.0.0.dev1", {"attn_dp_size": True}, "0.5.22", None, 0, 0, 0),
        ("0.5.22", {}, None, None, 0, 0, 0),
    ],
)
def test_traits(version, features, low, high, denied, absent, lacking):
    found = traits("sglang", features, parse_build(version))
    assert found.low == (Version(low) if low else None)
    assert found.high == (Version(high) if high else None)
    assert (len(found.denied), len(found.absent), len(found.lacking)) == (denied, absent, lacking)


@pytest.mark.parametrize("missing", sorted(engines.describe("vllm").always_shown))
def test_every_metric_of_vllm_is_there_from_its_release_on(missing):
    """A version of one process and the metrics of an older one, behind one address."""
    facts = engines.get("vllm").facts(payloads.answers(payloads.vllm_recorded()))
    found = traits("vllm", {**facts.features, missing: False}, parse_build("0.32.0"))
    assert [text.partition(" ")[0] for text in found.lacking] == [missing]
    since = Version(engines.describe("vllm").features_since[missing])
    before = f"{since.major}.{since.minor - 1}.0"
    assert not traits("vllm", {missing: False}, parse_build(before)).lacking


@pytest.mark.parametrize(("version", "absent", "lacking"), [("0.5.23", 0, 1), ("0.5.24", 1, 0)])
def test_a_release_beyond_all_data_may_have_dropped_a_trait(version, absent, lacking):
    found = traits("sglang", {"hicache_object_layout": False}, build_of("sglang", version))
    assert (len(found.absent), len(found.lacking)) == (absent, lacking)


def test_a_trait_of_one_node_does_not_stand_for_another():
    one, other = (traits("sglang", {"attn_dp_size": seen}, parse_build("0.5.22")) for seen in (True, False))
    found = merged([one, other])
    assert (str(found.low), len(found.lacking)) == ("0.5.22", 1)


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        ({"attn_dp_size": True}, "it has features of 0.5.22"),
        ({"/get_load": True}, "it has features that ended with 0.5.20"),
        ({"/get_load": True, "launch_command": True}, "its features are those of 0.5.20 to 0.5.20"),
        ({"attn_dp_size": False}, ""),
    ],
)
def test_sentence(features, sentence):
    assert traits("sglang", features, parse_build("dev")).sentence() == sentence


@pytest.mark.parametrize("engine", engines.RECOGNISABLE)
def test_every_trait_that_an_adapter_reports_is_dated(engine):
    """Else a trait would be looked for and mean nothing."""
    reported = set()
    for served in payloads.BUILDERS[engine]:
        reported |= set(engines.get(engine).facts(payloads.answers(served())).features)
    described = engines.describe(engine)
    assert reported <= {*described.features_since, *described.features_until}
    assert bool(reported) == bool(described.features_since)
