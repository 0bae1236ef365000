"""Traits of a running engine that date its build."""

import pytest
from packaging.version import Version

from kvaudit.auditor import engines
from kvaudit.auditor.advisories.features import traits
from kvaudit.auditor.advisories.versions import parse_build
from tests.auditor.engines import payloads


@pytest.mark.parametrize(
    ("version", "features", "low", "high", "denied", "absent"),
    [
        ("0.5.22", {"attn_dp_size": True, "frontend": True}, "0.5.22", None, 0, 0),
        ("0.5.22", {"attn_dp_size": False}, None, None, 0, 1),
        ("0.5.19", {"frontend": True}, "0.5.21", None, 1, 0),
        ("0.5.22", {"cuda_graph_max_bs": True}, None, "0.5.18", 1, 0),
        ("0.5.11", {"cuda_graph_max_bs": True}, None, "0.5.18", 0, 0),
        ("0.5.20", {"/get_load": True, "/ready": True}, "0.5.20", "0.5.20", 0, 0),
        ("0.5.22.dev3", {"attn_dp_size": True}, "0.5.22", None, 0, 0),  # on its way there
        ("0.0.0.dev1", {"attn_dp_size": True}, "0.5.22", None, 0, 0),
        ("0.5.22", {}, None, None, 0, 0),
    ],
)
def test_traits(version, features, low, high, denied, absent):
    found = traits("sglang", features, parse_build(version))
    assert found.low == (Version(low) if low else None)
    assert found.high == (Version(high) if high else None)
    assert (len(found.denied), len(found.absent)) == (denied, absent)


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
