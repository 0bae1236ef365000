"""``kvaudit gate`` end to end: real servers on loopback, exit codes, one sentence per trouble, no secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from kvaudit.cli import main
from tests import servers
from tests.waiting import PATIENCE, bounded

KEY = "sk-node-key-4711"


def server_info(role: str, **changed: Any) -> dict[str, Any]:
    """The incident's node, with changes; ``pool`` sets every place where SGLang shows it, and a later ``version`` comes
    with the arguments that date it."""
    info: dict[str, Any] = json.loads(servers.payload(f"sglang/server_info-{role}-0.5.19.json"))
    if changed.get("version") == "0.5.22":
        info |= {"launch_command": "python -m sglang.launch_server", "frontend": "python", "attn_dp_size": 1}
    pool = changed.pop("pool", None)
    if pool is not None:
        info["max_total_num_tokens"] = pool
        info["max_req_input_len"] = min(pool, info["context_length"]) - 6
        for state in info["internal_states"]:
            state["memory_usage"]["token_capacity"] = pool
    return {**info, **changed}


class Run:
    """What one gate said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def report(self) -> dict[str, Any]:
        document = json.loads(self.out)
        assert document["schema"] == "kvaudit.report/1"
        assert document["exit_code"] == self.code
        return document  # type: ignore[no-any-return]

    @property
    def line(self) -> str:
        lines = self.out.strip().splitlines()
        assert len(lines) == 1, "the gate prints one line"
        return lines[0]


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the gate in this process."""

    def run(*arguments: str) -> Run:
        code = main(["gate", *arguments])
        out, err = capsys.readouterr()
        return Run(code, out, err)

    return run


@pytest.fixture
def serve() -> Any:
    """Start servers that end with the test."""
    with ExitStack() as stack:
        yield lambda behaviour: stack.enter_context(servers.background(behaviour)).url


def in_process_of_its_own(*arguments: str, environ: Mapping[str, str] | None = None) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "kvaudit.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        env={**os.environ, **(environ or {})},
    )
    return Run(done.returncode, done.stdout, done.stderr)


def pair(serve: Any, **changed: Any) -> list[str]:
    prefill = serve(servers.sglang_node(server_info("prefill", **changed)))
    decode_pool = max(changed.get("pool", 0), 2_000_000)
    decode = serve(servers.sglang_node(server_info("decode", **{**changed, "pool": decode_pool})))
    return ["--node", f"prefill={prefill}", "--node", f"decode={decode}"]


# The three verdicts


def test_the_incident_pair_fails_and_names_the_danger_zone(serve: Any) -> None:
    prefill = serve(servers.sglang_node(servers.payload("sglang/server_info-prefill-0.5.19.json")))
    decode = serve(servers.sglang_node(servers.payload("sglang/server_info-decode-0.5.19.json")))
    run = in_process_of_its_own("gate", "--node", f"prefill={prefill}", "--node", f"decode={decode}")
    assert run.code == 1
    assert run.line.startswith("FAIL ")
    assert "681,280" in run.line
    assert "681,274 to 1,048,569 tokens" in run.line
    assert run.line.endswith("(history and quarantine not consulted)")


def test_the_incident_pair_as_a_report(gate: Any, serve: Any) -> None:
    report = gate(*pair(serve), "--json").report
    assert report["verdict"] == "fail"
    assert [result["check"] for result in report["results"]] == ["pool", "version"]
    pool = report["results"][0]
    assert pool["severity"] == "critical"
    assert pool["measures"]["danger_zone"] == [681274, 1048570]
    assert pool["measures"]["pool_tokens"] == 681280
    assert pool["measures"]["context_tokens"] == 1048576
    assert [node["role"] for node in report["target"]["nodes"]] == ["prefill", "decode"]
    assert report["target"]["fingerprint"]
    assert report["history"] is None
    assert all(len(item["sha256"]) == 64 for item in pool["evidence"])


def test_the_enlarged_pair_passes(gate: Any, serve: Any) -> None:
    run = gate(*pair(serve, pool=1_400_000, version="0.5.22"))
    assert run.code == 0, run.out
    assert run.line.startswith("PASS ")


@pytest.mark.parametrize("pool", [0, None])
def test_a_zero_or_hidden_pool_is_inconclusive(gate: Any, serve: Any, pool: int | None) -> None:
    info = server_info("prefill", pool=0, version="0.5.22")
    if pool is None:
        del info["max_total_num_tokens"], info["max_req_input_len"]
        info["internal_states"][0].pop("memory_usage")
    run = gate("--node", serve(servers.sglang_node(info)))
    assert run.code == 2, run.out
    assert run.line.startswith("INCONCLUSIVE ")


def test_the_recorded_vllm(gate: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_KEY", KEY)
    url = serve(servers.vllm_node(key=KEY))
    run = gate("--node", url, "--api-key-env", "NODE_KEY", "--json")
    node = run.report["target"]["nodes"][0]
    assert (node["engine"], node["version"]["value"], node["context"]["value"]) == ("vllm", "0.32.0", 2048)
    assert run.report["results"][0]["verdict"] == "pass"
    assert KEY not in run.out + run.err


# Answers that contradict each other


def contradicting(**changed: Any) -> servers.Behaviour:
    """A healthy node whose answers were changed on the way."""
    card = changed.pop("card", None)
    info = server_info("prefill", **{"pool": 1_400_000, "version": "0.5.22", **changed})
    more = {"v1__models": servers.answer({"data": [{"id": "m", "max_model_len": card}]})} if card else {}
    return servers.sglang_node(info, **more)


@pytest.mark.parametrize(
    ("node", "code", "says"),
    [
        # redteam case context_card: a sidecar announces less than the engine takes
        (contradicting(card=2048), 2, "says 1,048,576, but GET /v1/models data[].max_model_len says 2,048"),
        (contradicting(card=2048, pool=681_280), 1, "required for requests of 1,048,576"),
        (contradicting(card=2048, context_length=None), 2, "takes prompts of up to 1,048,569 tokens"),
        (contradicting(max_total_num_tokens=5_000_000), 2, "contradicts itself"),
        (contradicting(disaggregation_mode="decode", internal_states=[]), 3, "says it is decode"),
    ],
)  # fmt: skip
def test_contradicting_answers_never_pass(
    gate: Any, serve: Any, node: servers.Behaviour, code: int, says: str
) -> None:
    run = gate("--node", f"prefill={serve(node)}")
    assert run.code == code, run.out
    assert says in run.line


def test_context_headroom_and_pins_are_policy(gate: Any, serve: Any) -> None:
    nodes = pair(serve, pool=1_400_000, version="0.5.22")
    assert gate(*nodes, "--headroom", "1.5").code == 1
    assert gate(*nodes, "--context", "1200000").code == 1
    assert gate(*nodes, "--pin", "sglang>=0.5.23").code == 1


# Error, each with its own sentence, within the deadline


TROUBLE: dict[str, tuple[servers.Behaviour, str]] = {
    "no key": (servers.vllm_node(key=KEY), "answered 401: it wants a key and none was sent"),
    "garbage": (servers.raw(b"\x16\x03\x01 not http\r\n\r\n"), "did not answer in HTTP"),
    "endless": (servers.endless(), "sent more than 8 MiB"),
    "dripping": (servers.dripping(), "the server drips or hangs"),
    "hanging": (servers.hanging(), "sent nothing"),
    "redirect": (servers.redirecting("http://169.254.169.254/"), "redirects are never followed"),
    "bomb": (servers.gzip_bomb(128), "unpacks to more than 8 MiB"),
    "html": (servers.html(), "answered 200 with an HTML page"),
    "dropped": (servers.raw(b""), "closed the connection before"),
    "another service": (
        servers.replay({"/version": servers.answer({"gitVersion": "v1"})}),
        "not like any engine",
    ),
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_trouble_is_an_error_with_its_own_sentence(gate: Any, serve: Any, trouble: str) -> None:
    behaviour, says = TROUBLE[trouble]
    url = serve(behaviour)
    # only those that never end use up their deadline; the others have a generous one for slow machines
    deadline = 2 if trouble in ("dripping", "hanging") else 30
    with bounded(deadline + 30, f"a gate of at most {deadline} s"):
        run = gate("--node", url, "--timeout", str(deadline))
    assert run.code == 3, run.out
    assert run.line.startswith("ERROR ")
    assert says in run.line
    others = [sentence for name, (_, sentence) in TROUBLE.items() if name != trouble]
    assert not any(sentence in run.line for sentence in others)


def test_refused(gate: Any) -> None:
    run = gate("--node", f"http://127.0.0.1:{servers.closed_port()}")
    assert run.code == 3
    assert "refused the connection: nothing listens there" in run.line


def test_metadata_address(gate: Any) -> None:
    run = gate("--node", "http://169.254.169.254")
    assert run.code == 3
    assert "never connects there" in run.out + run.err


def test_one_broken_node_of_two(gate: Any, serve: Any) -> None:
    good = serve(servers.sglang_node(server_info("prefill", pool=1_400_000, version="0.5.22")))
    run = gate("--node", good, "--node", f"http://127.0.0.1:{servers.closed_port()}")
    assert run.code == 3


def test_a_fail_outweighs_an_error(gate: Any, serve: Any) -> None:
    bad = serve(servers.sglang_node(server_info("prefill")))
    run = gate("--node", bad, "--node", f"http://127.0.0.1:{servers.closed_port()}")
    assert run.code == 1


# Secrets


def test_no_secret_of_a_node_is_in_any_output(serve: Any) -> None:
    info = json.loads(servers.payload("sglang/server_info-single-0.5.22.json"))
    info["api_key"] = info["internal_states"][0]["api_key"] = KEY
    info["launch_command"] += f" --admin-api-key adm-{KEY} --ssl-keyfile-password hunter2-hunter2"
    info["ssl_keyfile_password"] = "hunter2-hunter2"
    url = serve(servers.sglang_node(info, key=KEY))
    for more in ([], ["--json"]):
        run = in_process_of_its_own(
            "gate", "--node", url, "--api-key-env", "NODE_KEY", *more, environ={"NODE_KEY": KEY}
        )
        assert run.code in (0, 1, 2), run.out + run.err
        for secret in (KEY, "hunter2", "sk-SECRET", "adm-"):
            assert secret not in run.out + run.err


def test_header_of_ones_own(gate: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    inner = servers.vllm_node()

    async def behave(request: servers.Request, writer: Any) -> None:
        seen.append(request.headers.get("x-gateway-key", ""))
        await inner(request, writer)

    monkeypatch.setenv("GATEWAY", "very-secret-gateway-key")
    run = gate("--node", serve(behave), "--header-env", "X-Gateway-Key=GATEWAY", "--json")
    assert set(seen) == {"very-secret-gateway-key"}
    assert "very-secret" not in run.out + run.err


# Usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Give either --node URL"),
        (["--node", "10.0.0.7:30000"], "http://"),
        (["--node", "http://u:p4ssw0rd@127.0.0.1:9"], "credentials"),
        (["--node", "chef=http://127.0.0.1:9"], "role"),
        (["--node", "http://127.0.0.1:9", "--frobnicate"], "Unrecognized arguments: --frobnicate"),
        (["--node", "http://127.0.0.1:9", "--context", "many"], "--context"),
        (["--node", "http://127.0.0.1:9", "--headroom", "0.5"], "headroom"),
        (["--node", "http://127.0.0.1:9", "--pin", "sglang>>1"], "pin"),
        (["--node", "http://127.0.0.1:9", "--timeout", "-1"], "--timeout"),
        (["--node", "http://127.0.0.1:9", "--wait", "soon"], "--wait"),
        (["--node", "http://127.0.0.1:9", "--also", "canary"], "--also"),
        (["--node", "http://127.0.0.1:9", "--engine", "tgi2"], "tgi2"),
        (
            ["--node", "http://127.0.0.1:9", "--api-key-env", "KVAUDIT_UNSET_VARIABLE"],
            "KVAUDIT_UNSET_VARIABLE",
        ),
        (["--node", "http://127.0.0.1:9", "--header-env", "X-Key"], "HEADER=NAME"),
        (
            ["--node", "http://127.0.0.1:9", "--header-env", "X-Key=KVAUDIT_UNSET_VARIABLE"],
            "not set or empty",
        ),
        (["--target", "/nonexistent/fleet.yaml"], "fleet.yaml"),
        (["--node", "http://127.0.0.1:9", "--server", "http://127.0.0.1:9"], "--deployment"),
        (["--node", "http://127.0.0.1:9", "--server", "http://h", "--deployment", "d"], "--token-env"),
        (
            [
                "--node",
                "http://127.0.0.1:9",
                "--server",
                "http://h",
                "--deployment",
                "a/b",
                "--token-env",
                "T",
            ],
            "slug",
        ),
        (["--node", "http://127.0.0.1:9", "--token-env", "T"], "--server"),
    ],
)
def test_usage_errors_are_3_with_a_sentence(gate: Any, arguments: list[str], says: str) -> None:
    plain = gate(*arguments)
    assert plain.code == 3
    assert says in plain.err + plain.out
    assert "Traceback" not in plain.err
    assert "p4ssw0rd" not in plain.err + plain.out
    as_json = gate(*arguments, "--json")
    assert as_json.code == 3
    assert as_json.report["verdict"] == "error"


def test_a_defect_of_ours_is_3_and_a_valid_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("out of order, --api-key sk-abcdefghijklmnop1234")

    monkeypatch.setattr("kvaudit.auditor.commands.gate.audited", broken)
    assert main(["gate", "--node", "http://127.0.0.1:9", "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == 3
    assert "RuntimeError" in err
    assert "abcdefghijklmnop" not in out + err


def test_help_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--help"]) == 0
    assert "--wait" in capsys.readouterr().out


# Starting nodes


class Starting:
    """Answers 503 for the first requests, then as the real thing."""

    def __init__(self, times: int, then: servers.Behaviour) -> None:
        self.left, self.then = times, then

    async def __call__(self, request: servers.Request, writer: Any) -> None:
        if self.left > 0:
            self.left -= 1
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        await self.then(request, writer)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvaudit.auditor.commands.gate.PAUSES", (0.02,))


@pytest.mark.usefixtures("impatient")
def test_wait_for_a_loading_node(gate: Any, serve: Any) -> None:
    ready = servers.sglang_node(server_info("prefill", pool=1_400_000, version="0.5.22"))
    url = serve(Starting(30, ready))
    assert gate("--node", url).code == 3
    run = gate("--node", url, "--wait", "120")
    assert run.code == 0, run.out
    assert "waiting up to 120 s" in run.err


@pytest.mark.usefixtures("impatient")
def test_wait_for_a_pool_that_is_not_known_yet(gate: Any, serve: Any) -> None:
    early = servers.sglang_node(server_info("prefill", pool=0, version="0.5.22"))
    late = servers.sglang_node(server_info("prefill", pool=1_400_000, version="0.5.22"))
    asked = 0

    async def behave(request: servers.Request, writer: Any) -> None:
        nonlocal asked
        asked += 1
        await (early if asked < 15 else late)(request, writer)

    assert gate("--node", serve(behave), "--wait", "120").code == 0


@pytest.mark.usefixtures("impatient")
def test_wait_ends(gate: Any) -> None:
    with bounded(60, "a wait of 0.3 s"):
        run = gate("--node", f"http://127.0.0.1:{servers.closed_port()}", "--wait", "0.3")
    assert run.code == 3
    assert "waiting up to 0.3 s" in run.err


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "behaviour", [servers.sglang_node(server_info("prefill")), servers.vllm_node(key=KEY)]
)
def test_wait_does_not_wait_for_a_clear_answer(gate: Any, serve: Any, behaviour: servers.Behaviour) -> None:
    """Neither a fail nor a refused key becomes better by waiting."""
    with bounded(60, "an answer that needs no waiting"):
        run = gate("--node", serve(behaviour), "--wait", "600")
    assert run.code in (1, 3)
    assert "waiting" not in run.err


@pytest.mark.usefixtures("impatient")
def test_wait_does_not_wait_for_a_pool_that_this_release_never_tells(gate: Any, serve: Any) -> None:
    """vLLM before 0.24 tells blocks x block size, which bounds nothing."""
    metrics = servers.recorded("vllm-0.32.0/get_metrics.http")
    old = servers.Recorded(200, metrics.body.replace(b"kv_cache_size_tokens", b"other"), metrics.content_type)
    node = servers.vllm_node(version=servers.answer({"version": "0.23.0"}), metrics=old)
    with bounded(60, "an answer that needs no waiting"):
        run = gate("--node", serve(node), "--wait", "600")
    assert (run.code, "waiting" in run.err) == (2, False)


# What only history knows


class Record:
    """A kvaudit server's gate endpoint."""

    def __init__(self, reply: servers.Recorded) -> None:
        self.reply = reply
        self.bodies: list[Any] = []

    async def __call__(self, request: servers.Request, writer: Any) -> None:
        if request.headers.get("authorization") != "Bearer api-token-123":
            await servers.replay({request.path: servers.answer({}, 401)})(request, writer)
            return
        if (request.method, request.path) != ("POST", "/api/v1/deployments/glm/gate"):
            await servers.replay({})(request, writer)
            return
        self.bodies.append(json.loads(request.body))
        await servers.replay({request.path: self.reply})(request, writer)


def consult(gate: Any, serve: Any, record: servers.Behaviour, *more: str, **changed: Any) -> Run:
    nodes = pair(serve, **{"pool": 1_400_000, "version": "0.5.22", **changed})
    asked = ("--server", serve(record), "--deployment", "glm", "--token-env", "KVAUDIT_TOKEN")
    return gate(*nodes, *asked, *more)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("theirs", "code", "says"),
    [
        ({"verdict": "pass", "exit_code": 0, "summary": "No quarantine."}, 0, "No quarantine."),
        (
            {"verdict": "fail", "exit_code": 1, "summary": "In quarantine since noon."},
            1,
            "In quarantine since noon.",
        ),
        ({"verdict": "inconclusive", "summary": "The gate has expired."}, 2, "The gate has expired."),
        ({"verdict": "error", "summary": "Broken."}, 3, "Broken."),
        ({"verdict": "splendid", "summary": "?"}, 3, ""),
        ({"verdict": None, "summary": "?"}, 3, ""),
    ],
)
def test_the_worse_verdict_wins(
    gate: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Any], code: int, says: str
) -> None:
    monkeypatch.setenv("KVAUDIT_TOKEN", "api-token-123")
    record = Record(servers.answer(theirs))
    run = consult(gate, serve, record)
    assert run.code == code, run.out
    assert says in run.line
    assert "not consulted" not in run.line
    assert record.bodies[0]["verdict"] == "pass"
    assert record.bodies[0]["schema"] == "kvaudit.report/1"


def test_our_fail_outweighs_their_pass(gate: Any, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVAUDIT_TOKEN", "api-token-123")
    run = consult(
        gate, serve, Record(servers.answer({"verdict": "pass", "summary": "ok"})), "--json", pool=681_280
    )
    assert run.code == 1
    assert run.report["history"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("record", "token", "says"),
    [
        (Record(servers.answer({"verdict": "pass"})), "wrong-token-1", "token behind --token-env is refused"),
        (servers.replay({}), "api-token-123", "no deployment 'glm'"),
        (servers.html(), "api-token-123", "is that a kvaudit server?"),
        (servers.redirecting("http://login/"), "api-token-123", "redirects are never followed"),
        (servers.raw(b""), "api-token-123", "could not be asked"),
        (Record(servers.answer({"detail": "x"}, 500)), "api-token-123", "answered 500 without a verdict"),
    ],
)
def test_a_server_that_cannot_be_asked_is_an_error(
    gate: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, record: servers.Behaviour, token: str, says: str
) -> None:
    monkeypatch.setenv("KVAUDIT_TOKEN", token)
    run = consult(gate, serve, record)
    assert run.code == 3, run.out
    assert says in run.line
    assert token not in run.out + run.err


# Start-up is a feature


def test_the_gate_imports_neither_django_nor_numpy_nor_yaml(serve: Any) -> None:
    url = serve(servers.sglang_node(server_info("prefill")))
    script = (
        "import sys\n"
        "from kvaudit.cli import main\n"
        f"code = main(['gate', '--node', {url!r}])\n"
        "print(code, *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=2 * PATIENCE, check=True
    )
    code, *loaded = done.stdout.splitlines()[-1].split()
    assert code == "1"
    heavy = {
        "django", "celery", "psycopg", "numpy", "scipy", "pydantic", "yaml", "httpx", "rich", "click", "pygments",
        "trio", "structlog", "cryptography", "hypothesis", "pytest", "plotly", "uvicorn", "starlette",
    }  # fmt: skip
    assert not heavy & set(loaded)


def test_no_tls_context_is_built_for_plain_http(serve: Any) -> None:
    url = serve(servers.sglang_node(server_info("prefill")))
    script = (
        "import ssl\n"
        "def refuse(*a, **k): raise AssertionError('a TLS context was built')\n"
        "ssl.create_default_context = refuse\n"
        "ssl.SSLContext.load_verify_locations = refuse\n"
        "ssl.SSLContext.load_default_certs = refuse\n"
        "from kvaudit.cli import main\n"
        f"print(main(['gate', '--node', {url!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=2 * PATIENCE, check=True
    )
    assert done.stdout.splitlines()[-1] == "1"


@pytest.mark.parametrize(
    ("seen", "limit", "code"),
    [
        (True, 500_000, 0),
        (True, 400_000, 0),
        (True, 900_000, 2),  # the server's edge lets prompts through that this file says it refuses
        (True, None, 2),
        (True, True, 2),
        (True, "500000", 2),
        (False, 500_000, 2),
        (None, 500_000, 2),
        ("yes", 500_000, 2),
    ],
)
def test_an_edge_limit_stands_for_the_context_only_when_the_server_saw_it_refusing(
    gate: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, seen: Any, limit: Any, code: int
) -> None:
    monkeypatch.setenv("KVAUDIT_TOKEN", "api-token-123")
    flags = pair(serve, pool=681_280, version="0.5.22")
    nodes = [flag.partition("=") for flag in flags if "=" in flag]
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: glm\n    engine: sglang\n    edge_limit: 500000\n    nodes:\n"
        + "".join(f"      - {{name: {role}, role: {role}, url: '{url}'}}\n" for role, _, url in nodes)
    )
    said = {"verdict": "pass", "summary": "Fine.", "edge_limit": limit, "edge_limit_seen_refusing": seen}
    record = Record(servers.answer(said))
    asked = ("--server", serve(record), "--deployment", "glm", "--token-env", "KVAUDIT_TOKEN")
    run = gate("--target", str(fleet), *asked)
    assert run.code == code, run.out
