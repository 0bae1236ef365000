"""What is open without a key, from recorded answers."""

import json

import pytest

from kvaudit.auditor import engines
from kvaudit.auditor.checks import get
from kvaudit.auditor.checks.contract import Anonymous, Audit, NodeSeen
from kvaudit.auditor.checks.open_endpoints.open_routes import Answered, routes
from kvaudit.auditor.readings import Exposure
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.audits import node, silent
from tests.auditor.engines import payloads

PASS, FAIL, INCONCLUSIVE, ERROR = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR

REFUSED = Anonymous(401, b'{"error":"Unauthorized"}')
NOT_FOUND = Anonymous(404, b'{"detail":"Not Found"}')
MODELS = Anonymous(200, b'{"object":"list","data":[]}')
VERSION = Anonymous(200, b'{"version":"0.32.0"}')
METRICS = Anonymous(200, b"# HELP x\n# TYPE x gauge\n")
LOGIN_PAGE = Anonymous(200, b"<html>sign in</html>")
SILENCE = Anonymous(0, problem="connection refused")
REAL_ROUTES = Anonymous(200, payloads.recorded("get_openapi_json")[1])


def listing(*paths):
    return Anonymous(200, json.dumps({"paths": {path: {} for path in paths}}).encode())


VLLM_WITH_KEY = {
    "/v1/models": REFUSED,
    "/version": VERSION,
    "/metrics": METRICS,
    "/server_info": NOT_FOUND,
    "/openapi.json": REAL_ROUTES,
}
ALL_REFUSED = dict.fromkeys(VLLM_WITH_KEY, REFUSED)
CLOSED = dict.fromkeys(engines.describe("sglang").surface.reads, REFUSED)


async def observed(answers, engine="vllm", exposures=()):
    given = node("unified", engine=engine, name="n", exposures=exposures)

    async def ask(name, path):
        assert name == "n"
        return answers[path]

    audit = Audit("d", [given], ask_anonymously=ask)
    check = get("exposure")
    return check, await check.observe(audit), audit


def judge(answers, engine="vllm", exposures=()):
    import asyncio

    check, seen, audit = asyncio.run(observed(answers, engine, exposures))
    return check.judge(seen, audit)


def found(result):
    return {(finding["severity"], finding["what"]) for finding in result.measures["findings"]}


def test_real_vllm_with_a_key_serves_completions_without_it():
    result = judge(VLLM_WITH_KEY)
    assert (result.verdict, result.severity) == (FAIL, "high")
    assert "/invocations" in result.summary
    assert {
        ("warn", "the version can be read without a key"),
        ("warn", "metrics can be read without a key"),
        ("warn", "the tokenizer needs no key: /tokenize, /detokenize"),
        ("warn", "scaling routes need no key: /scale_elastic_ep"),
    } < found(result)


@pytest.mark.parametrize(
    ("changed", "verdict", "said"),
    [
        ({"/openapi.json": listing("/v1/completions")}, PASS, "metrics can be read"),
        ({"/openapi.json": listing("/invocations"), "/v1/models": MODELS}, PASS, "inference routes need no key"),
        ({"/openapi.json": listing("/collective_rpc", "/sleep")}, FAIL, "/collective_rpc, /sleep"),
        ({"/openapi.json": NOT_FOUND}, INCONCLUSIVE, "does not list its routes"),
        ({"/openapi.json": LOGIN_PAGE}, INCONCLUSIVE, "does not list its routes"),
        ({"/openapi.json": SILENCE}, INCONCLUSIVE, "did not answer /openapi.json in time"),
        ({"/openapi.json": Anonymous(200, b"[" * 100_000)}, INCONCLUSIVE, "does not list"),
        ({"/openapi.json": listing("/x"), "/metrics": SILENCE}, INCONCLUSIVE, "did not answer /metrics"),
        ({"/openapi.json": listing("/x"), "/metrics": Anonymous(503)}, INCONCLUSIVE, "did not answer /metrics"),
        (dict.fromkeys(VLLM_WITH_KEY, SILENCE), ERROR, "connection refused"),
        ({**ALL_REFUSED, "/openapi.json": listing("/v1/models")}, PASS, "nothing that was asked"),
        # a login page that answers everything is not the engine
        ({**dict.fromkeys(VLLM_WITH_KEY, LOGIN_PAGE), "/openapi.json": listing("/ping")}, PASS, "nothing that was asked"),
        # case 04: LoRA adapters can be swapped at run time, below a prefix that no key guards here
        ({"/openapi.json": listing("/v1/load_lora_adapter"), "/v1/models": MODELS}, FAIL, "/v1/load_lora_adapter"),
        ({"/openapi.json": listing("/v1/unload_lora_adapter")}, PASS, "metrics can be read"),  # a key guards it
        ({"/openapi.json": listing("/v1/load_lora_adapter"), "/v1/models": NOT_FOUND}, INCONCLUSIVE, "whether a key is set"),
        ({"/openapi.json": listing("/release_kv_cache_memory", "/abort_requests")}, FAIL, "/abort_requests"),
        ({"/openapi.json": listing("/start_weight_update")}, FAIL, "routes that act are open"),
        ({"/openapi.json": listing("/reset_encoder_cache")}, FAIL, "routes that act are open"),
        ({"/openapi.json": listing("/score")}, PASS, "inference routes need no key: /score"),
        ({"/openapi.json": listing("/conjure")}, PASS, "does not know need no key: /conjure"),
    ],
)  # fmt: skip
def test_vllm(changed, verdict, said):
    result = judge(VLLM_WITH_KEY | changed)
    assert result.verdict is verdict, result.summary
    assert said in result.summary


def info(**fields):
    return Anonymous(200, json.dumps({"version": "0.5.22", **fields}).encode())


@pytest.mark.parametrize(
    ("answers", "verdict", "said"),
    [
        ({}, PASS, "nothing that was asked"),
        ({"/metrics": METRICS}, PASS, "metrics can be read"),
        (
            {
                "/server_info": Anonymous(200, b'{"api_key": "[redacted]"}', exposed=("api_key",)),
                "/v1/models": MODELS,
            },
            FAIL,
            "api_key can be read in clear without a key",
        ),
        (
            {"/server_info": info(api_key=None, admin_api_key=None), "/v1/models": MODELS},
            FAIL,
            "routes that act",
        ),
        ({"/server_info": info(api_key="[redacted]", admin_api_key=None)}, PASS, "whole configuration"),
        # nothing shows whether a key guards what acts: keys that a proxy took out, the Rust front end, no configuration
        ({"/server_info": info(), "/v1/models": MODELS}, INCONCLUSIVE, "guards the routes that act"),
        (
            {"/server_info": info(api_key=None), "/v1/models": MODELS},
            INCONCLUSIVE,
            "guards the routes that act",
        ),
        ({"/server_info": NOT_FOUND, "/v1/models": MODELS}, INCONCLUSIVE, "guards the routes that act"),
        (
            {"/server_info": info(api_key=None, admin_api_key="[redacted]"), "/v1/models": MODELS},
            PASS,
            "inference routes",
        ),
        (
            {"/server_info": NOT_FOUND, "/get_server_info": info(api_key=None, admin_api_key=None)},
            FAIL,
            "routes that act",
        ),
        ({"/server_info": LOGIN_PAGE}, PASS, "nothing that was asked"),
    ],
)
def test_sglang(answers, verdict, said):
    result = judge(CLOSED | answers, "sglang")
    assert result.verdict is verdict, result.summary
    assert said in result.summary


@pytest.mark.parametrize(
    ("listed", "models", "closed"),
    [
        (("/v1/completions",), REFUSED, "no secret, acting route or completion is open"),
        (("/v1/completions",), MODELS, "no secret or acting route is open"),
        (("/scale_elastic_ep",), REFUSED, "no secret or completion is open"),
        (("/scale_elastic_ep",), MODELS, "no secret is open"),
        (("/conjure",), REFUSED, "no secret is open"),
    ],
)
def test_the_sentence_never_contradicts_itself(listed, models, closed):
    result = judge(VLLM_WITH_KEY | {"/openapi.json": listing(*listed), "/v1/models": models})
    assert (result.verdict, closed in result.summary) == (PASS, True), result.summary


@pytest.mark.parametrize("engine", engines.RECOGNISABLE)
def test_no_route_is_both_acting_and_inert(engine):
    surface = engines.describe(engine).surface
    others = {*surface.inert, *surface.scaling, *surface.completions, *surface.inference, *surface.tokenizers}
    assert not set(surface.acting) & others
    assert not surface.listed or surface.inert


def test_exposed_keys_are_to_be_changed_and_never_shown():
    secret = Anonymous(
        200, b'{"api_key": "sk-very-secret"}', exposed=("api_key", "internal_states.0.api_key")
    )
    result = judge(CLOSED | {"/server_info": secret}, "sglang")
    assert "Change the exposed keys now" in result.next
    assert "sk-very-secret" not in json.dumps(result.as_report())


def test_what_the_reading_found_is_a_finding_too():
    development = Exposure("development mode", "GET /server_info", "fail")
    result = judge(VLLM_WITH_KEY | {"/openapi.json": listing("/x")}, exposures=(development,))
    assert (result.verdict, "development mode" in result.summary) == (FAIL, True)


def test_trtllm_never_drains_its_statistics():
    assert "/metrics" not in engines.describe("trtllm").surface.reads


@pytest.mark.parametrize("engine", engines.RECOGNISABLE)
def test_only_allow_listed_paths_are_asked(engine):
    adapter = engines.get(engine)
    assert (
        set(engines.describe(engine).surface.reads)
        <= {step.path for step in adapter.plan if not step.destructive} | adapter.gets
    )


@pytest.mark.parametrize(
    ("audit", "verdict", "said"),
    [
        (Audit("d", []), INCONCLUSIVE, "no node was read"),
        (Audit("d", [node("unified")]), INCONCLUSIVE, "nothing was asked"),
        (Audit("d", [silent()]), ERROR, "connection refused"),
    ],
)
def test_nothing_asked(audit, verdict, said):
    result = get("exposure").judge((), audit)
    assert result.verdict is verdict
    assert said in result.summary.lower()


def test_an_engine_without_known_paths_is_inconclusive():
    assert judge({}, "generic").verdict is INCONCLUSIVE


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, None),
        (Anonymous(200, b"{}"), None),
        (Anonymous(200, b'{"paths": []}'), None),
        (Anonymous(200, b"\xff"), None),
        (Anonymous(401, b'{"paths": {"/a": {}}}'), None),
        (listing("/a"), frozenset({"/a"})),
    ],
)
def test_routes(answer, expected):
    assert routes(answer) == expected


def test_observation_is_plain():
    assert Answered(NodeSeen("n", "http://n"), {}, None).routes is None


@pytest.mark.parametrize("late", ["/openapi.json", "/v1/models"])
@pytest.mark.parametrize(
    ("others", "asked", "verdict"),
    [(VLLM_WITH_KEY, 2, FAIL), (dict.fromkeys(VLLM_WITH_KEY, SILENCE), 1, ERROR)],
)
def test_what_decides_and_came_too_late_is_asked_for_again(late, others, asked, verdict):
    """Once, and only from a node that answers at all."""
    times = []

    class Slow(dict):
        def __getitem__(self, path):
            if path != late:
                return super().__getitem__(path)
            times.append(path)
            return SILENCE if len(times) == 1 else VLLM_WITH_KEY[path]

    assert judge(Slow(others)).verdict is verdict
    assert len(times) == asked
