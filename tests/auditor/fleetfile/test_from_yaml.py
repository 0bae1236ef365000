"""The YAML fleet file: what is read, and one sentence with its line for every mistake."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.fleetfile import FleetFile, FleetWindow, parse_fleet
from tests.waiting import bounded

WHOLE = """\
schema: kvaudit.fleet/1
deployments:
  - slug: glm-5-prod
    team: inference
    owner: Ada
    contact: "#inference"
    engine: sglang
    entry: https://llm.example.org/
    model: glm-5.3
    context: 1_048_576
    edge_limit: 900000
    disagg_buffer: 2000000
    headroom: 1.5
    pins: ["sglang>=0.5.22"]
    conditions: {hicache: false}
    components: {mooncake: 0.3.13}
    consent: {given: true, by: Ada, reason: night window}
    windows:
      - {days: [mon, fri], from: "22:00", to: "06:00", zone: Europe/Berlin}
    plans:
      - {checks: [version, pool, drift], every: 1h, jitter: 30s}
      - name: nightly
        checks: [rejection, canary]
        cron: "0 3 * * *"
        zone: Europe/Berlin
        budget_tokens: 20000000
        windows: [{from: 01:00, to: 24:00}]
    nodes:
      - {name: p0, role: prefill, url: "http://10.0.0.7:30000", headers_env: {X-Key: P0_KEY}}
      - {role: decode, url: "http://10.0.0.8:30000/", key_env: D0_KEY, engine: TensorRT-LLM}
    tenants:
      - {name: a, key_env: KEY_A}
      - {name: b, key_env: KEY_B}
"""


TWICE_AUTHORIZED = "    nodes: [{url: 'http://h', key_env: A, headers_env: {authorization: B}}]"
BOMB = "a0: &a0 [x]\n" + "\n".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]" for n in range(30))


def lines(text):
    return [(problem.line, problem.sentence) for problem in parse_fleet(text).problems]


def deployment(*more, nodes="    nodes: [{url: 'http://10.0.0.7:1'}]"):
    """A minimal file whose deployment has further lines; they begin on line 4."""
    return "\n".join(["schema: kvaudit.fleet/1", "deployments:", "  - slug: a", *more, nodes, ""])


def test_everything_is_read():
    fleet = parse_fleet(WHOLE)
    assert fleet.problems == ()
    assert fleet.usable
    (found,) = fleet.deployments
    assert (found.slug, found.team, found.context, found.edge_limit) == (
        "glm-5-prod",
        "inference",
        1_048_576,
        900_000,
    )
    assert (found.entry, found.headroom, found.pins) == ("https://llm.example.org", 1.5, ("sglang>=0.5.22",))
    assert (found.conditions, found.components) == ((("hicache", False),), (("mooncake", "0.3.13"),))
    assert (found.consent, found.consent_by, found.consent_reason) == (True, "Ada", "night window")
    assert found.windows[0].as_json() == {
        "days": ["mon", "fri"],
        "from": "22:00",
        "to": "06:00",
        "zone": "Europe/Berlin",
    }
    hourly, nightly = found.plans
    assert (hourly.name, hourly.interval, hourly.jitter, hourly.cron) == (
        "version + pool + drift",
        3600,
        30,
        "",
    )
    assert (nightly.cron, nightly.interval, nightly.windows) == (
        "0 3 * * *",
        None,
        (FleetWindow("01:00", "24:00"),),
    )
    prefill, decode = found.nodes
    assert (prefill.name, prefill.headers_env, prefill.line) == ("p0", (("X-Key", "P0_KEY"),), 29)
    assert (decode.name, decode.url) == ("decode-1", "http://10.0.0.8:30000")
    assert (decode.key_env, decode.engine) == ("D0_KEY", "trtllm")
    assert [tenant.name for tenant in found.tenants] == ["a", "b"]


@pytest.mark.parametrize(
    "text", [WHOLE, WHOLE.encode(), b"\xef\xbb\xbf" + WHOLE.encode(), WHOLE.replace("\n", "\r\n")]
)
def test_text_bytes_and_byte_order_marks(text):
    assert parse_fleet(text).usable


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "is empty"),
        ("# only a comment\n", 0, "is empty"),
        ("- a\n", 1, "must be a group of fields"),
        ("deployments: []\n", 1, "must say schema: kvaudit.fleet/1"),
        ("schema: kvaudit.fleet/2\ndeployments: []\n", 1, "this version reads kvaudit.fleet/1"),
        ("schema: kvaudit.fleet/1\n", 1, "has no deployments"),
        ("schema: kvaudit.fleet/1\ndeployments: []\n", 2, "deployments is empty"),
        ("schema: kvaudit.fleet/1\ndeployments: x\n", 2, "must be a list"),
        ("schema: kvaudit.fleet/1\ndeployments: [x]\n", 2, "must be a group of fields"),
        ("schema: kvaudit.fleet/1\ndeployments:\n  - {team: a}\n", 3, "slug is missing"),
        (deployment("    contxt: 5"), 4, "did you mean context?"),
        (deployment("    team: a", "    team: b"), 5, "gives team twice (first on line 4)"),
        (deployment("    context: many"), 4, "whole number of tokens, not 'many'"),
        (deployment("    context: 0"), 4, "between 1 and 10^12"),
        (deployment("    context: -5"), 4, "between 1 and 10^12"),
        (deployment("    context: true"), 4, "not true"),
        (deployment("    context: [1]"), 4, "not a list"),
        (deployment("    context: " + "9" * 40), 4, "whole number of tokens"),
        (deployment("    headroom: 0.9"), 4, "1.0 is the least allowed"),
        (deployment("    headroom: .nan"), 4, "must be a number"),
        (deployment("    engine: sglnag"), 4, "did you mean sglang?"),
        (deployment("    entry: llm.example.org"), 4, "must begin with http"),
        (deployment("    consent: perhaps"), 4, "must be true or false"),
        (deployment("    consent: {by: me}"), 4, "given is missing"),
        (deployment("    pins: ['sglang']"), 4, "must be an engine and a range"),
        (deployment("    conditions: [hicache]"), 4, "must be a group"),
        (deployment("    conditions: {hicache: perhaps}"), 4, "true or false"),
        (deployment("    windows: [{from: '25:00', to: '01:00'}]"), 4, "time of day"),
        (deployment("    windows: [{from: '01:00'}]"), 4, "to is missing"),
        (deployment("    windows: [{from: '01:00', to: '02:00', days: [moon]}]"), 4, "did you mean mon?"),
        (deployment("    windows: [{from: '01:00', to: '02:00', zone: Mars}]"), 4, "no time zone"),
        (deployment("    windows: [{from: '01:00', to: '02:00', zone: ../../etc}]"), 4, "no time zone"),
        (deployment("    plans: [{checks: [pool]}]"), 4, "either every (such as 1h) or cron"),
        (deployment("    plans: [{checks: [pool], every: 1h, cron: '0 3 * * *'}]"), 4, "either every"),
        (deployment("    plans: [{checks: [poool], every: 1h}]"), 4, "did you mean pool?"),
        (deployment("    plans: [{checks: [], every: 1h}]"), 4, "must name its checks"),
        (deployment("    plans: [{checks: [pool], every: 1s}]"), 4, "at least 2 s"),
        (deployment("    plans: [{checks: [pool], every: often}]"), 4, "time span such as"),
        (deployment("    plans: [{checks: [pool], cron: '0 3 * *'}]"), 4, "five fields"),
        (deployment("    tenants: [{key_env: A}]"), 4, "name is missing"),
        (deployment("    tenants: [{name: a}, {name: a}]"), 4, "already used on line 4"),
        (deployment(nodes="    nodes: []"), 3, "lists no nodes"),
        (deployment(nodes="    team: x"), 3, "lists no nodes"),
        (deployment(nodes="    nodes: [{role: prefill}]"), 4, "url is missing"),
        (deployment(nodes="    nodes: [{url: 'http://h', role: decod}]"), 4, "did you mean decode?"),
        (deployment(nodes="    nodes: [{url: 'http://h?x=1'}]"), 4, "without ? or #"),
        (deployment(nodes="    nodes: [{url: 'http://h:99999'}]"), 4, "bad host or port"),
        (deployment(nodes="    nodes: [{url: 'http://h:0'}]"), 4, "port 0"),
        (deployment(nodes="    nodes: [{url: 'ftp://h'}]"), 4, "must begin with http"),
        (deployment(nodes="    nodes: [{url: 'http:///x'}]"), 4, "no usable host"),
        (deployment(nodes="    nodes:\n    - {url: 'http://h'}\n    - {url: 'http://H'}"), 6, "already used on line 5"),
        (deployment(nodes="    nodes: [{url: 'http://h', headers_env: {Host: A}}]"), 4, "belongs to the connection"),
        (deployment(nodes="    nodes: [{url: 'http://h', headers_env: {'a b': A}}]"), 4, "no header name"),
        (deployment(nodes=TWICE_AUTHORIZED), 4, "one of the two"),
        (deployment(nodes="    nodes: [{url: 'http://h', pointers: {capacity: pool}}]"), 4, "JSON pointer such as"),
        (deployment().replace("slug: a", "slug: A b"), 3, "lower-case letters"),
        (deployment() + "  - slug: a\n    nodes: [{url: 'http://h'}]\n", 5, "slug 'a' was already used on line 3"),
        ("schema: kvaudit.fleet/1\ndeployments: [\n", 3, "no valid YAML"),
        ("a: b: c\n", 1, "no valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "several YAML documents"),
        ("? [a]\n: b\n", 1, "where a field name is expected"),
    ],
)  # fmt: skip
def test_mistakes(text, line, said):
    assert any(at == line and said in sentence for at, sentence in lines(text)), lines(text)


def test_all_mistakes_are_found_at_once_in_order_of_lines():
    found = lines(deployment("    context: x", "    headroom: y", "    engine: z"))
    assert [line for line, _ in found] == [4, 5, 6]


def test_problems_are_not_endless():
    assert len(lines(deployment(*(f"    unknown{number}: 1" for number in range(500))))) == 101


class TestSecrets:
    """Somebody will paste the key itself: it must not come back in a sentence."""

    SECRET = "sk-live-0123456789"

    @pytest.mark.parametrize(
        "nodes",
        [
            "    nodes: [{{url: 'http://h', key_env: {0}}}]",
            "    nodes: [{{url: 'http://h', headers_env: {{Authorization: 'Bearer {0}'}}}}]",
            "    nodes: [{{url: 'http://user:{0}@h'}}]",
            "    nodes: [{{url: 'ftp://user:{0}@h'}}]",
            "    nodes: [{{url: 'http://h', api_key: {0}}}]",
            "    nodes: [{{url: 'http://h', headers: {{Authorization: {0}}}}}]",
        ],
    )
    def test_never_repeated(self, nodes):
        found = lines(deployment(nodes=nodes.format(self.SECRET)))
        assert found
        assert self.SECRET not in repr(found)

    def test_where_it_belongs_is_said(self):
        found = lines(deployment(nodes="    nodes: [{url: 'http://h', api_key: x}]"))
        assert "secrets never stand in a fleet file" in found[0][1]


def nested(depth):
    return "a: " + "[" * depth + "]" * depth


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: &x [1]\nb: *x\n", "Anchors and aliases"),
        (BOMB, "Anchors and aliases"),
        ("a: &lonely [1]\n", "Anchors and aliases"),
        ("a: !!python/object/apply:os.system [id]\n", "tags"),
        ("a: !!binary aGk=\n", "tags"),
        (nested(50), "nested more than"),
        (nested(100_000), "maximum nesting depth"),
        ("x" * (4 * 1024 * 1024 + 1), "at most 4,194,304 bytes"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ("a: \x00", "NUL"),
        ("a: \ud800", "surrogate"),
        ("a: \x07", "no valid YAML"),
        ("[" + "1," * 300_000 + "]", "more than 200,000 values"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_quickly(content, said):
    with bounded(60, "refusing it"):
        problems = parse_fleet(content).problems
    assert said in problems[0].sentence


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300)))
def test_arbitrary_content_never_raises_and_is_never_usable(content):
    fleet = parse_fleet(content)
    assert isinstance(fleet, FleetFile)
    assert fleet.problems


@given(st.integers(0, len(WHOLE)), st.text(max_size=5))
def test_a_damaged_file_never_raises(at, noise):
    fleet = parse_fleet(WHOLE[:at] + noise + WHOLE[at:])
    for problem in fleet.problems:
        assert problem.sentence
        assert 0 <= problem.line <= WHOLE.count("\n") + 7
