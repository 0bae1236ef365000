"""``kvaudit probe`` with passive checks, and targets out of a fleet file, over real sockets."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kvaudit.cli import main
from tests import servers

KEY = "sk-node-key-4711"


@pytest.fixture
def serve() -> Any:
    with ExitStack() as stack:
        yield lambda behaviour: stack.enter_context(servers.background(behaviour)).url


def node(**changed: Any) -> servers.Behaviour:
    info = json.loads(servers.payload("sglang/server_info-single-0.5.22.json"))
    return servers.sglang_node({**info, **changed}, key=changed.pop("key", ""))


def test_one_line_per_check(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["probe", "pool", "version", "--node", serve(node()), "--context", "40000"])
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split()[1] for line in lines] == ["pool:", "version:"]
    assert lines[0].startswith("PASS ")
    assert code in (0, 2)


def test_exposure_of_an_open_node_fails_and_shows_no_key(
    serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """SGLang without a key shows its own keys to anyone (sglang.md 1.7)."""
    code = main(["probe", "exposure", "--node", serve(node()), "--json"])
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert code == 1, out
    assert report["results"][0]["check"] == "exposure"
    assert "api_key" in out
    assert "SECRET" not in out + err


def test_exposure_is_asked_without_the_key(
    serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_KEY", KEY)
    seen: list[tuple[str, bool]] = []
    inner = servers.vllm_node(key=KEY)

    async def behave(request: servers.Request, writer: Any) -> None:
        seen.append((request.path, "authorization" in request.headers))
        await inner(request, writer)

    main(["probe", "exposure", "--node", serve(behave), "--api-key-env", "NODE_KEY"])
    with_key = [path for path, sent in seen if sent]
    without = [path for path, sent in seen if not sent]
    assert "/metrics" in with_key
    assert "/v1/models" in without
    assert KEY not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["pool"], ["--node", "http://127.0.0.1:9", "--budgett", "1"]]
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["probe", *arguments, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "error"


def test_drift_without_history_never_passes(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "drift", "--node", serve(node())]) == 2
    assert capsys.readouterr().out.startswith("INCONCLUSIVE ")


# Fleet files


def fleet(path: Path, *nodes: tuple[str, str], key_env: str = "") -> str:
    lines = ["schema: kvaudit.fleet/1", "deployments:", "  - slug: glm", "    engine: sglang", "    nodes:"]
    for name, url in nodes:
        lines += [f"      - name: {name}", f"        role: {name}", f"        url: {url}"]
        if key_env:
            lines.append(f"        key_env: {key_env}")
    file = path / "fleet.yaml"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def incident(role: str) -> servers.Behaviour:
    return servers.sglang_node(servers.payload(f"sglang/server_info-{role}-0.5.19.json"), key=KEY)


def test_gate_over_a_fleet_file(
    serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLM_KEY", KEY)
    file = fleet(
        tmp_path,
        ("prefill", serve(incident("prefill"))),
        ("decode", serve(incident("decode"))),
        key_env="GLM_KEY",
    )
    assert main(["gate", "--target", file, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["target"]["deployment"] == "glm"
    assert [each["name"] for each in report["target"]["nodes"]] == ["prefill", "decode"]
    assert report["results"][0]["measures"]["danger_zone"] == [681274, 1048570]


def test_a_fleet_file_is_complete_so_a_missing_role_is_not_a_pass(
    serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GLM_KEY", KEY)
    file = fleet(tmp_path, ("decode", serve(incident("decode"))), key_env="GLM_KEY")
    assert main(["gate", "--target", file, "--context", "100000", "--pin", "sglang>=0.5"]) != 0


def test_flags_override_the_file(
    serve: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file names no key; the flag does, for every node."""
    monkeypatch.setenv("NODE_KEY", KEY)
    nodes = ("prefill", serve(incident("prefill"))), ("decode", serve(incident("decode")))
    file = fleet(tmp_path, *nodes)
    assert main(["gate", "--target", file]) == 3
    assert "wants a key and none was sent" in capsys.readouterr().out
    assert main(["gate", "--target", file, "--api-key-env", "NODE_KEY", "--headroom", "2"]) == 1
    assert "headroom 2" in capsys.readouterr().out


def test_a_broken_fleet_file_is_a_usage_error_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: glm\n    nodes: [{name: a, url: nonsense}]\n"
    )
    assert main(["gate", "--target", str(file)]) == 3
    assert "line 4" in capsys.readouterr().err
