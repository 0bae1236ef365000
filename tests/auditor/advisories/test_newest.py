"""Versions above all data: the next releases of a project, and numbers that count something else."""

import re

import pytest
from packaging.version import Version

from kvaudit.auditor import engines
from kvaudit.auditor.advisories.load import shipped
from kvaudit.auditor.advisories.newest import build_of


@pytest.mark.parametrize(
    ("name", "version", "kind", "newer"),
    [
        ("sglang", "0.5.23", "release", False),
        ("sglang", "0.5.22+cu130", "release", False),
        ("sglang", "0.5.24", "release", True),
        ("sglang", "0.5.23.post1", "release", True),
        ("sglang", "0.6.0", "release", True),
        ("sglang", "0.26.8", "unknown", False),
        ("sglang", "1.0.0", "unknown", False),
        ("sglang", "26.8", "unknown", False),
        ("vllm", "0.34.0rc1", "candidate", True),
        ("vllm", "0.43.2", "release", True),
        ("vllm", "1.4.2", "unknown", False),  # Dynamo's number
        ("vllm", "0.99.0", "unknown", False),
        ("vllm", "0.34.0.dev7", "nightly", False),  # in doubt anyway
        ("trtllm", "1.4.0", "release", True),
        ("trtllm", "2.0.0", "unknown", False),
        ("lmcache", "0.5.7", "release", True),
        ("lmcache", "5.7", "unknown", False),
        ("litellm", "99.0", "release", False),  # nothing is known of how far it has got
        ("vllm", None, "unknown", False),
    ],
)
def test_by_the_newest_release_known(name, version, kind, newer):
    found = build_of(name, version)
    assert (found.kind, bool(found.newer)) == (kind, newer)
    assert found.known == (kind != "unknown")


def test_the_newest_release_of_every_engine_is_data():
    assert set(engines.RECOGNISABLE) <= set(shipped().newest)


@pytest.mark.parametrize("name", sorted(shipped().newest))
def test_it_keeps_up_with_what_the_data_names(name):
    """A range or a trait that names a later release was added by somebody who knew of it."""
    ranges = [
        text
        for advisory in shipped().advisories
        for named, text in ((advisory.engine, advisory.affected), *advisory.pair)
        if named == name
    ]
    described = engines.describe(name)
    dates = (*described.features_since.values(), *described.features_until.values())
    named = {Version(each) for text in (*ranges, *dates) for each in re.findall(r"[0-9][0-9a-z.]*", text)}
    assert all(each <= Version(shipped().newest[name]) for each in named)
