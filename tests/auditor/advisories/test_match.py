"""When an advisory applies, is undecided, merely possible, or ruled out."""

import pytest

from kvaudit.auditor.advisories.load import Advisory, shipped
from kvaudit.auditor.advisories.match import Subject, affects, match, matches
from kvaudit.auditor.advisories.versions import parse_build


def advisory(**changes):
    usual = {
        "id": "KVA-900",
        "engine": "sglang",
        "title": "x",
        "severity": "high",
        "effect": "content",
        "references": ("a#1",),
        "verified": "thread",
        "affected": "<0.5.20",
    }
    return Advisory(**{**usual, **changes})


def outcome(entry, version="0.5.19", engine="sglang", components=None, **answers):
    found = match(entry, Subject(engine, parse_build(version), components or {}, answers.get))
    return found.outcome, found.asks


@pytest.mark.parametrize(
    ("entry", "given", "expected"),
    [
        (advisory(), {}, ("applies", ())),
        (advisory(), {"version": "0.5.20"}, ("not", ())),
        (advisory(), {"version": "0.5.20rc1"}, ("applies", ())),
        (advisory(), {"version": "0.5.20.dev1"}, ("undecided", ())),
        (advisory(), {"version": None}, ("undecided", ())),
        (advisory(), {"version": "0.5.19+acme1.backport"}, ("undecided", ())),  # may carry the fix
        (advisory(), {"version": "0.5.22+acme1.backport"}, ("not", ())),
        (advisory(), {"engine": "vllm"}, ("not", ())),
        (advisory(conditions=("hicache",)), {"hicache": True}, ("applies", ())),
        (advisory(conditions=("hicache",)), {"hicache": False}, ("not", ())),
        (advisory(conditions=("hicache",)), {}, ("undecided", ("hicache",))),
        (advisory(conditions=("hicache", "lora")), {"hicache": True}, ("undecided", ("lora",))),
        (advisory(conditions=("hicache", "lora")), {"hicache": False}, ("not", ())),
        # circumstances are traffic: any shared server sees them
        (advisory(circumstances=("client_aborts", "load")), {}, ("applies", ())),
        # nobody has established a range: listed, never a verdict
        (advisory(affected=""), {}, ("possible", ())),
        (advisory(affected="", conditions=("hicache",)), {"hicache": True}, ("possible", ())),
        (advisory(affected="", conditions=("hicache",)), {"hicache": False}, ("not", ())),
        (advisory(effect="availability"), {}, ("possible", ())),
        (advisory(effect="access"), {}, ("applies", ())),
    ],
)  # fmt: skip
def test_one_engine(entry, given, expected):
    assert outcome(entry, **given) == expected


PAIR = advisory(engine="lmcache", affected="<=0.5.4", pair=(("vllm", ">=0.26"),))


@pytest.mark.parametrize(
    ("components", "version", "answers", "expected"),
    [
        ({"lmcache": "0.5.2"}, "0.28.0", {}, "applies"),
        ({"lmcache": "0.5.5"}, "0.28.0", {}, "not"),
        ({"lmcache": "0.5.2"}, "0.25.1", {}, "not"),
        ({"lmcache": ""}, "0.28.0", {}, "undecided"),  # seen, but its version is not told
        ({"lmcache": ""}, "0.25.1", {}, "not"),
        ({}, "0.28.0", {}, "not"),  # never seen: not considered
        ({}, "0.28.0", {"lmcache": True}, "undecided"),
    ],
)
def test_pairs(components, version, answers, expected):
    assert outcome(PAIR, version, "vllm", components, **answers)[0] == expected


def test_a_component_without_version_and_a_condition_in_doubt_is_only_possible():
    """SGLang tells no version of Mooncake: every disaggregated pair would be stuck otherwise."""
    store = advisory(engine="mooncake", affected="<0.3.12", conditions=("mooncake_store",))
    assert outcome(store, "0.5.22", components={"mooncake": ""})[0] == "possible"
    assert outcome(store, "0.5.22", components={"mooncake": ""}, mooncake_store=True)[0] == "undecided"
    assert outcome(store, "0.5.22", components={"mooncake": ""}, mooncake_store=False)[0] == "not"


@pytest.mark.parametrize(
    ("engine", "version", "expected"),
    [
        ("sglang", "0.5.19", True),
        ("sglang", "0.5.20", False),
        ("sglang", "0.5.20.dev3", None),
        ("sglang", None, None),
        ("vllm", "0.5.19", None),
    ],
)
def test_affects_looks_at_the_range_alone(engine, version, expected):
    assert affects("KVA-001", engine, version) is expected


def test_an_unknown_id_is_a_key_error():
    with pytest.raises(KeyError):
        shipped().by_id("KVA-000")


def test_matches_come_surest_first():
    found = matches(Subject("sglang", parse_build("0.5.19"), {}, {"pd_disaggregation": True}.get))
    order = [each.outcome for each in found]
    assert order == sorted(order, key=["applies", "undecided", "possible"].index)
    assert {"applies", "undecided", "possible"} == set(order)


def test_every_shipped_entry_fails_exactly_where_it_says_so():
    """With every range satisfied and every condition met, an entry decides if and only if its
    expected results say that the version check fails."""
    inside = {"": "1.0"}
    for entry in shipped().advisories:
        versions = {
            name: inside.get(text) or _inside(text)
            for name, text in ((entry.engine, entry.affected), *entry.pair)
        }
        subject = Subject(entry.engine, parse_build(versions[entry.engine]), versions, lambda condition: True)
        applies = match(entry, subject).outcome == "applies"
        assert applies == (entry.checks.get("version") == "fail"), entry.id


def _inside(text):
    """A version that satisfies the range: one of its bounds, or just beside one."""
    from kvaudit.auditor.advisories.versions import in_range, parse_range

    candidates = [str(version) for _, version in parse_range(text)]
    candidates += [f"{candidate}.post1" for candidate in candidates] + ["0.0.1"]
    return next(candidate for candidate in candidates if in_range(parse_build(candidate), text))
