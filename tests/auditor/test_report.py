"""The report document and the line for people."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor import report
from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import EngineFacts, Worker, read
from kvaudit.auditor.verdict import Evidence, Result, Verdict

FACTS = EngineFacts("sglang", version=read("0.5.22", "GET /server_info version"), pool=read(4096, "there"))
GOOD = NodeSeen("n", "http://n", "prefill", facts=FACTS)
BAD = NodeSeen("m", "http://m", problem="m refused the connection.")


def result(verdict: str, **more: Any) -> Result:
    return Result(
        more.pop("check", "pool"), Verdict(verdict), more.pop("summary", f"It is {verdict}."), **more
    )


@pytest.mark.parametrize(
    ("verdicts", "expected", "code"),
    [
        (["pass", "pass"], "pass", 0),
        (["pass", "fail", "error"], "fail", 1),
        (["inconclusive", "pass"], "inconclusive", 2),
        (["inconclusive", "error"], "error", 3),
        ([], "inconclusive", 2),
    ],
)
def test_verdict_and_exit_code(verdicts: list[str], expected: str, code: int) -> None:
    document = report.build("d", [GOOD], [result(verdict) for verdict in verdicts])
    assert (document["schema"], document["verdict"], document["exit_code"]) == (
        "kvaudit.report/1",
        expected,
        code,
    )


def test_target() -> None:
    target = report.build("glm", [GOOD], [])["target"]
    assert target["deployment"] == "glm"
    assert target["fingerprint"]
    [node] = target["nodes"]
    assert node["pool"] == {"value": 4096, "source": "there", "state": "read"}
    assert node["context"]["state"] == "unknown"
    assert node["role"] == "prefill"


def test_a_node_that_was_not_read_leaves_no_fingerprint() -> None:
    target = report.build("glm", [GOOD, BAD], [])["target"]
    assert target["fingerprint"] is None
    assert target["nodes"][1]["problem"] == "m refused the connection."


def test_a_router_shows_its_workers() -> None:
    router = EngineFacts("sglang", kind="router", workers=(Worker("http://w:1", "decode"),))
    [node] = report.build("glm", [NodeSeen("r", "http://r", facts=router)], [])["target"]["nodes"]
    assert node["kind"] == "router"
    assert node["workers"] == [{"url": "http://w:1", "role": "decode"}]


def test_results_carry_digests_and_no_bodies() -> None:
    evidence = (Evidence("response", "0" * 64, "GET http://n/x", b"body"),)
    [row] = report.build("d", [GOOD], [result("pass", evidence=evidence)])["results"]
    assert row["evidence"] == [{"kind": "response", "sha256": "0" * 64, "source": "GET http://n/x"}]


def test_failure_is_a_report() -> None:
    document = report.failure("The URL is empty.")
    assert (document["verdict"], document["exit_code"], document["error"]) == (
        "error",
        3,
        "The URL is empty.",
    )


@pytest.mark.parametrize(
    ("verdict", "results", "expected"),
    [
        ("pass", [result("pass", summary="Pool holds.")], "PASS pool: Pool holds. End."),
        (
            "fail",
            [result("pass"), result("fail", check="version", summary="Too old.", next="Upgrade.")],
            "FAIL version: Too old. Next: Upgrade. End.",
        ),
        (
            "fail",
            [result("fail", summary="Small."), result("fail", check="version", summary="Old.")],
            "FAIL pool: Small. version: Old. End.",
        ),
        (
            "pass",
            [result("pass", summary="Pool holds.", warn=True)],
            "PASS pool: Pool holds. Warnings from pool. End.",
        ),
        (
            "error",
            [
                result("error", check=name, summary="n could not be read: it refused the connection.")
                for name in "ab"
            ],
            "ERROR a: n could not be read: it refused the connection. (b likewise.) End.",
        ),
        ("inconclusive", [], "INCONCLUSIVE End."),
        ("pass", [result("pass", summary="Two\nlines.")], "PASS pool: Two lines. End."),
        ("pass", [result("pass", summary="Red\x1b[31m.")], "PASS pool: Red?[31m. End."),
    ],
)
def test_line(verdict: str, results: list[Result], expected: str) -> None:
    assert report.line(Verdict(verdict), results, "End.") == expected
