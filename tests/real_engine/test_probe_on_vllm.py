"""Active checks against a vLLM that nobody here wrote.

Opt in: ``KVAUDIT_REAL_URL=http://127.0.0.1:18000 KVAUDIT_REAL_KEY=... KVAUDIT_REAL_KEY_B=... pytest -m
real_engine``. The model may be as weak as a copier that sees three characters.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from kvaudit.cli import main

URL = os.environ.get("KVAUDIT_REAL_URL", "")
KEYS = (
    os.environ.get("KVAUDIT_REAL_KEY", "sk-tenant-a"),
    os.environ.get("KVAUDIT_REAL_KEY_B", "sk-tenant-b"),
)
BUDGET = "700000"  # prompt tokens: without the tiers beyond the pool, which cost a pool's worth three times

pytestmark = [
    pytest.mark.real_engine,
    pytest.mark.skipif(not URL, reason="no real engine: KVAUDIT_REAL_URL is not set"),
]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(
        ("REAL_A", "REAL_B", "SALT_A", "SALT_B"), (*KEYS, "salt-a", "salt-b"), strict=True
    ):
        monkeypatch.setenv(name, value)


def probed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Results by check."""
    asked = ["--node", URL, "--api-key-env", "REAL_A", "--entry", URL, "--budget", BUDGET]
    asked += ["--tenant-a-key-env", "REAL_A", "--tenant-b-key-env", "REAL_B", "--json", "--timeout", "1800"]
    main(["probe", *arguments, *asked])
    out, err = capsys.readouterr()
    for secret in (*KEYS, "salt-a", "salt-b"):
        assert secret not in out + err
    return {result["check"]: result for result in json.loads(out)["results"]}


def test_the_boundary_is_where_the_engine_says(capsys: pytest.CaptureFixture[str]) -> None:
    """N - 1 answers, N and N + 1 are refused with an error that names the length."""
    result = probed(capsys, "rejection")["rejection"]
    assert result["verdict"] == "pass", result["summary"]
    rungs = {rung["name"]: rung for rung in result["measures"]["rungs"]}
    assert rungs["N-1"]["accepted"] == 3
    assert (rungs["N"]["refused"], rungs["N"]["status"]) == (3, 400)
    assert rungs["N+1"]["refused"] == 1


def test_counts_are_right_and_own_facts_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    results = probed(capsys, "accounting", "coherence")
    assert results["accounting"]["verdict"] == "pass", results["accounting"]["summary"]
    assert results["coherence"]["verdict"] in ("pass", "inconclusive"), results["coherence"]["summary"]


def test_no_marker_surfaces(capsys: pytest.CaptureFixture[str]) -> None:
    """A copier may surface stale text too seldom, which is said and no pass."""
    result = probed(capsys, "canary")["canary"]
    assert result["verdict"] in ("pass", "inconclusive"), result["summary"]
    assert result["measures"]["accepted_rounds"] >= 20
    assert result["measures"]["hits"] == []


def test_prefill_times(capsys: pytest.CaptureFixture[str]) -> None:
    result = probed(capsys, "prefill")["prefill"]
    assert result["verdict"] in ("pass", "inconclusive"), result["summary"]


def test_prefixes_are_shared_without_a_salt(capsys: pytest.CaptureFixture[str]) -> None:
    """A true finding: vLLM keys its cache by text alone unless a salt is sent."""
    result = probed(capsys, "prefix")["prefix"]
    assert result["verdict"] == "fail", result["summary"]
    assert "crosses tenants" in result["summary"]


def test_each_tenants_salt_separates_them(capsys: pytest.CaptureFixture[str]) -> None:
    """And whoever sends another's salt reaches its cache: the gateway must set it."""
    result = probed(capsys, "prefix", "--tenant-a-salt-env", "SALT_A", "--tenant-b-salt-env", "SALT_B")[
        "prefix"
    ]
    assert result["verdict"] == "pass", result["summary"]
    assert result["warn"]
    assert "only if the gateway sets it" in result["summary"]
