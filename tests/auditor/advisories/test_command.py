"""``kvaudit advisories``: exit codes, JSON, and sentences for every mistake."""

import json

import pytest

from kvaudit.auditor.advisories.command import main


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list"], 0),
        (["list", "--engine", "vllm"], 0),
        (["list", "--engine", "tensorrt-llm", "--json"], 0),
        (["match", "--engine", "sglang", "--version", "0.5.22"], 0),
        (["match", "--engine", "sglang", "--version", "0.5.24"], 0),
        (["match", "--engine", "sglang", "--version", "0.5.19", "--condition", "pd_disaggregation"], 1),
        (["match", "--engine", "sglang", "--version", "0.5.20.dev3", "--condition", "pd_disaggregation"], 1),  # KVA-004
        (["match", "--engine", "sglang", "--version", "nightly"], 2),
        (["match", "--engine", "sglang"], 2),
        (["match", "--engine", "vllm", "--version", "0.34.0", "--component", "lmcache=0.5.2"], 1),
        (["match", "--engine", "vllm", "--version", "0.34.0", "--component", "lmcache="], 2),
        (["match", "--engine", "vllm", "--version", "0.34.0"], 0),
        (["match", "--engine", "vllm", "--version", "0.32.0", "--condition", "nixl=false"], 0),
        # usage
        ([], 3),
        (["match"], 3),
        (["mtch"], 3),
        (["match", "--engine", "sglnag", "--version", "1"], 3),
        (["list", "--engine", "none"], 3),
        (["match", "--engine", "vllm", "--component", "=1"], 3),
        (["match", "--engine", "vllm", "--condition", "nxil"], 3),
        (["match", "--engine", "vllm", "--frob"], 3),
    ],
)  # fmt: skip
def test_exit_codes(arguments, code, capsys):
    assert main(arguments) == code
    said = capsys.readouterr()
    assert (said.err if code == 3 else said.out).strip()


def test_a_usage_error_is_valid_json_too(capsys):
    assert main(["match", "--json", "--condition", "nxil", "--engine", "vllm"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 3
    assert "did you mean nixl?" in document["summary"]


def test_match_as_json(capsys):
    assert main(["match", "--engine", "sglang", "--version", "v0.5.19-cu129", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "inconclusive"
    by_id = {match["id"]: match for match in document["matches"]}
    assert by_id["KVA-001"]["outcome"] == "undecided"
    assert by_id["KVA-001"]["undecided"] == ["pd_disaggregation", "prefill_pool<context_length"]


def test_a_clear_match_is_not_called_safe(capsys):
    main(["match", "--engine", "sglang", "--version", "0.5.24"])
    assert "That is not evidence of isolation." in capsys.readouterr().out
