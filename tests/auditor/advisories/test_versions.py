"""Version strings as they are met, and ranges over what they may mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from kvaudit.auditor.advisories.versions import in_range, parse_build, parse_range

INCIDENT = ">=0.4.7,<0.5.20"


@pytest.mark.parametrize(
    ("text", "kind", "low", "high"),
    [
        ("0.5.22", "release", "0.5.22", "0.5.22"),
        ("v0.5.22", "release", "0.5.22", "0.5.22"),
        (" 0.5.22\n", "release", "0.5.22", "0.5.22"),
        ("0.5.10.post1", "release", "0.5.10.post1", "0.5.10.post1"),
        (
            "0.5.22-1",
            "release",
            "0.5.22",
            "0.5.22.post1",
        ),  # PEP 440's implicit post, or a packager's revision
        ("0.5.2rc2", "candidate", "0.5.2rc2", "0.5.2rc2"),
        ("1.3.0rc29", "candidate", "1.3.0rc29", "1.3.0rc29"),
        # image tags
        ("v0.5.13.post1-cu130", "release", "0.5.13.post1", "0.5.13.post1"),
        ("v0.4.5-rocm630", "release", "0.4.5", "0.4.5"),
        ("0.5.12-oe2403sp3", "release", "0.5.12", "0.5.12"),
        ("lmsysorg/sglang:v0.5.19-cu129", "release", "0.5.19", "0.5.19"),
        ("registry.local:5000/vllm/vllm-openai:v0.29.0", "release", "0.29.0", "0.29.0"),
        ("vllm/vllm-openai:v0.29.0@sha256:0123", "release", "0.29.0", "0.29.0"),
        ("sglang:v0.5.22", "release", "0.5.22", "0.5.22"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "release", "1.2.0", "1.2.0"),
        # platforms and commits in the local part are no forks
        ("0.32.0+cu130", "release", "0.32.0", "0.32.0"),
        ("0.5.19+g680bd4b42", "release", "0.5.19", "0.5.19"),
        # development builds lie between themselves and the release they lead to
        ("0.5.20.dev7+g680bd4b", "nightly", "0.5.20.dev7", "0.5.20"),
        ("0.5.10.post2.dev346+g680bd4b42", "nightly", "0.5.10.post2.dev346", "0.5.10.post2"),
        ("0.5.6.post3.dev1154+ge2c8a50b", "nightly", "0.5.6.post3.dev1154", "0.5.6.post3"),
        ("0.20.2rc1.dev143+g2c6b59b80", "nightly", "0.20.2rc1.dev143", "0.20.2"),
        ("0.10.2rc3.dev259+g838d7116b.precompiled", "nightly", "0.10.2rc3.dev259", "0.10.2"),
        ("0.5.8.post1.dev9646+pr.18598.gfec757fd3", "nightly", "0.5.8.post1.dev9646", "0.5.8.post1"),
        # vendors
        ("0.27.1+backport052.sm89.cu130", "vendor", "0.27.1", "0.27.1"),
        ("0.21.0+rhaiv.8", "vendor", "0.21.0", "0.21.0"),
    ],
)
def test_readable(text, kind, low, high):
    build = parse_build(text)
    assert (build.kind, build.low, build.high) == (kind, Version(low), Version(high))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "not known"),
        ("", "not known"),
        (22, "not known"),
        ("latest", "moving tag"),
        ("dev", "moving tag"),
        ("nightly-dev-20260107-dce8b060", "moving tag"),
        ("lmsysorg/sglang:nightly", "moving tag"),
        ("kimi-k3", "no version"),
        ("b10566", "no version"),
        ("lmsysorg/sglang@sha256:0123456789", "digest"),
        ("0.0.0.dev1+gdce8b0606", "unrelated tag"),
        ("0.0.0.dev0", "unrelated tag"),
        ("0.1.dev1+g2c27c294c.d20260608", "unrelated tag"),
        ("0.3.2.dev9646+pr.18598.gfec757fd3", "unrelated tag"),
        ("9" * 300, "too long"),
        ("0.5.22; rm -rf", "no version"),
        # case 06: tags that count something else
        ("nvcr.io/nvidia/vllm:26.08-py3", "counts years"),
        ("nvcr.io/nvidia/sglang:25.10-py3", "counts years"),
        ("26.8", "counts years"),
        ("26.8rc1", "counts years"),
        ("2026.8.1", "counts years"),
        ("vllm/vllm-openai:20260812", "counts years"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.2", "something else"),
        ("nvcr.io/nvidia/ai-dynamo/sglang:0.5.1", "something else"),
        ("lmcache/vllm-openai:v0.3.9", "something else"),
        ("registry.local:5000/chat/my-model:0.29.0", "something else"),
        ("my-model:0.5.22", "something else"),
    ],
)
def test_unreadable_is_unknown_with_a_reason(text, why):
    build = parse_build(text)
    assert build.kind == "unknown"
    assert not build.known
    assert why in build.why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.4.6.post5", False),
        ("0.4.7", True),
        ("0.5.19", True),
        ("0.5.19.post1", True),
        ("0.5.20rc1", True),  # a pre-release of the fix counts as affected
        ("0.5.20", False),
        ("0.5.22", False),
        ("0.5.20.dev7", None),  # may or may not hold the fix
        ("0.5.19.dev7", True),
        ("0.5.21.dev1", False),
        ("0.5.19-1", True),
        ("0.0.0.dev1", None),
        ("latest", None),
        (None, None),
    ],
)
def test_incident_range(text, expected):
    assert in_range(parse_build(text), INCIDENT) is expected


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("~=0.5.20", "0.5.22", True),
        ("~=0.5.20", "0.6.0", False),
        ("==0.5.*", "0.5.23", True),
        ("==0.5.*", "0.6.0", False),
        ("==0.5.10.post1", "0.5.10-1", None),
        ("!=0.5.21", "0.5.21", False),
        (">=0.5.22", "0.5.22rc1", False),
        (">=0.5.22", "0.5.22.dev123", None),
        ("==0.5.20rc1", "0.5.20.dev7", None),  # only inside the interval
        ("<=1.2.0rc1", "1.2.0rc1", True),
        ("<=1.2.0rc1", "1.2.0", False),
        ("==1.2.0", "1.2.0+cu130", True),
        # case 09: a pin on the very build, with its local part
        ("==0.5.22+cu130", "0.5.22+cu130", True),
        ("==0.5.22+CU130", "0.5.22+cu130", True),
        ("==0.5.22+cu129", "0.5.22+cu130", False),
        ("==0.5.22+cu130", "0.5.22", False),
        ("==0.5.21+cu130", "0.5.22+cu130", False),
        ("!=0.5.22+cu130", "0.5.22+cu130", False),
        ("!=0.5.22+cu129", "0.5.22+cu130", True),
        (">=0.5.20,!=0.5.22+cu129", "0.5.22+cu130", True),
        (">=0.5.23,!=0.5.22+cu129", "0.5.22+cu130", False),
        (">=0.5.22+cu130", "0.5.22", True),  # an order knows no local part
        ("==0.27.1+backport052.sm89.cu130", "0.27.1+backport052.sm89.cu130", True),
        ("==0.5.20.dev7+g680bd4b", "0.5.20.dev7+g680bd4b", True),
    ],
)
def test_other_ranges(text, version, expected):
    assert in_range(parse_build(version), text) is expected


@pytest.mark.parametrize(
    "text", ["", "0.5.22", ">=", ">=x", "===0.5.22", ">=0.5.*", "~=1", ">=0.5,,<1", "<0.5 or >1"]
)
def test_unreadable_range_is_a_sentence(text):
    with pytest.raises(ValueError, match="no version range"):
        parse_range(text)


@given(st.text(max_size=80))
def test_arbitrary_text_never_raises(text):
    build = parse_build(text)
    assert build.known == (build.kind != "unknown")
    assert in_range(build, ">=0.5.22") in (True, False, None)
    if not build.known:
        assert in_range(build, ">=0.5.22") is None


@given(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 30)), st.integers(0, 5000))
def test_a_development_build_is_never_surer_than_its_ends(release, number):
    base = ".".join(map(str, release))
    build = parse_build(f"{base}.dev{number}")
    if not build.known:
        return
    for text in (">=0.5.22", "<0.5.20", INCIDENT):
        ends = {in_range(parse_build(str(end)), text) for end in (build.high,)}
        if in_range(build, text) is not None:
            assert ends == {in_range(build, text)}
