"""The gate and the passive probes against a vLLM that nobody here wrote.

Opt in: ``KVAUDIT_REAL_URL=http://127.0.0.1:18000 KVAUDIT_REAL_KEY=... pytest -m real_engine``.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from kvaudit.cli import main

URL, KEY = os.environ.get("KVAUDIT_REAL_URL", ""), os.environ.get("KVAUDIT_REAL_KEY", "sk-tenant-a")

pytestmark = [
    pytest.mark.real_engine,
    pytest.mark.skipif(not URL, reason="no real engine: KVAUDIT_REAL_URL is not set"),
]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REAL_KEY", KEY)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert KEY not in out + err
    return json.loads(out)  # type: ignore[no-any-return]


def test_gate(capsys: pytest.CaptureFixture[str]) -> None:
    """Engine, version, context and the usable pool come from the process; without a connector nothing
    listed is known to apply, so the pool decides."""
    document = report(capsys, "gate", "--node", URL, "--api-key-env", "REAL_KEY")
    [node] = document["target"]["nodes"]
    assert node["engine"] == "vllm"
    for reading in ("version", "context", "pool", "model"):
        assert node[reading]["state"] != "unknown", reading
    pool = document["results"][0]
    enough = node["pool"]["value"] >= 1.25 * node["context"]["value"]
    assert pool["verdict"] == ("pass" if enough else "fail")
    assert document["exit_code"] in (0, 1, 2)


def test_a_context_that_the_pool_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "gate", "--node", URL, "--api-key-env", "REAL_KEY", "--context", "100000000")
    assert document["exit_code"] == 1


def test_wrong_engine_and_wrong_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["gate", "--node", URL, "--api-key-env", "REAL_KEY", "--engine", "sglang"]) == 3
    assert "looks like vllm" in capsys.readouterr().out
    monkeypatch.setenv("REAL_KEY", "sk-not-a-key-of-it")
    assert main(["gate", "--node", URL, "--api-key-env", "REAL_KEY"]) == 3
    assert "the key that was sent is refused" in capsys.readouterr().out
    assert main(["gate", "--node", URL]) == 3
    assert "wants a key and none was sent" in capsys.readouterr().out


def test_exposure(capsys: pytest.CaptureFixture[str]) -> None:
    """A real vLLM leaves metrics, version and tokenizer open, and answers completions on /invocations."""
    document = report(capsys, "probe", "exposure", "--node", URL, "--api-key-env", "REAL_KEY")
    [result] = document["results"]
    assert result["verdict"] == "fail"
    said = json.dumps(result)
    for path in ("/invocations", "/metrics", "/version", "/tokenize"):
        assert path in said, path
