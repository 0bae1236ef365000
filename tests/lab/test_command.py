from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kvaudit.lab.command import main
from kvaudit.lab.faults import combine, known
from kvaudit.lab.faults.base import Faults, Nature

SPECIFIED = [
    "none",
    "stale_pages",
    "healthy",
    "fixed_0_5_20",
    "fixed_0_5_21",
    "short_transfer",
    "late_writer",
    "lease_expiry",
    "crossed",
    "mixed_len",
    "snapshot_restore",
    "phantom_cache",
    "shared_prefix",
    "salt_ignored",
    "tier_salt_dropped",
    "quality_drift",
    "status_200_length",
    "empty_200",
    "reject_500",
    "sse_error_in_200",
    "pool_stranded",
    "wedge_at_limit",
    "wedge",
    "wedge_decode",
    "wedge_for_minutes",
    "auto_truncate",
    "gateway_cache",
    "flaky",
    "dripping",
    "bomb",
    "redirect",
    "hidden_pool",
    "zero_gauges",
    "nightly_version",
    "unauthenticated",
    "keys_in_server_info",
    "capacity_change",
    "hit_garbles",
    "tier_garbles",
    "tier_swaps",
    "unwritten_hash",
    "third_tenant",
    "response_cache",
    "middle_pages",
    "all_but_last_page",
    "residue",
    "dwell",
    "foreign_after_nonce",
    "interleaved",
    "batch_garbles",
    "empty_some",
    "empty_all",
    "stream_mix",
    "bad_replica",
    "chat_only",
    "unstreamed_only",
    "header_leak",
    "logprobs_leak",
    "error_leak",
    "restart",
    "rate_limit",
    "guardrail",
    "reasoning_model",
    "system_prompt",
    "short_system_prompt",
    "short_memory",
    "content_parts",
]
UNREPORTED = {"third_tenant", "foreign_after_nonce", "header_leak", "logprobs_leak", "error_leak"}
"""Found by attacking the checks: their docstrings say that no public report names them."""


def test_faults_lists_every_fault_with_its_report(capsys):
    assert main(["faults", "--json"]) == 0
    listed = {load["name"]: load for load in json.loads(capsys.readouterr().out)}
    assert set(listed) == set(SPECIFIED)
    without = {name for name, item in listed.items() if not item["reports"]}
    oddities = {name for name, item in listed.items() if item["nature"] == "healthy oddity"}
    assert without - oddities == UNREPORTED | {"flaky", "dripping", "bomb", "redirect"}
    assert all("No public report names it" in listed[name]["about"] for name in UNREPORTED)
    assert all(len(item["about"]) > 20 for item in listed.values())
    assert main(["faults"]) == 0
    assert "sglang#30233" in capsys.readouterr().out


def test_the_page_of_the_lab_lists_every_fault_under_its_nature():
    page = (Path(__file__).parents[2] / "docs" / "lab.md").read_text("utf-8")
    listed = {
        nature: set(re.findall(r"`(\w+)`", faults))
        for nature, faults in re.findall(r"^\| \*\*([a-z ]+)\*\*[^|]*\| (.+) \|$", page, flags=re.M)
    }
    wanted: dict[str, set[str]] = {}
    for name, fault in known().items():
        wanted.setdefault(fault.nature.value, set()).add(name)
    assert listed == wanted


def test_every_fault_says_what_it_is_to_those_who_are_served():
    for name in set(SPECIFIED) - {"none"}:
        assert "nature" in vars(known()[name]), name
    natures = {fault.nature for fault in known().values()}
    assert natures == set(Nature)


def test_every_fault_overrides_the_right_behaviour_somewhere():
    said = {"__init__", "__module__", "__doc__", "name", "nature", "reports", "flavours", "configure"}
    behaviour = set(vars(Faults)) - said
    for fault in set(SPECIFIED) - {
        "none",
        "healthy",
        "fixed_0_5_21",
        "nightly_version",
        "keys_in_server_info",
    }:
        own = {name for each in known()[fault].__mro__[:-2] for name in vars(each)}
        assert own & behaviour, fault


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--fault", "nonsense"], "there is no fault called 'nonsense'"),
        (["serve", "--fault", "stale_pages", "--flavour", "vllm"], "does not exist in flavour 'vllm'"),
        (["serve", "--fault", "dwell", "--unified"], "'dwell' lies in the transfer from prefill to decode"),
        (["serve", "--flavour", "vllm", "--prefill-pool", "4096"], "estimated maximum model length"),
        (["serve", "--prefill-pool", "12"], "at least 64 tokens"),
        (["serve", "--prefill-pool", "many"], "invalid"),
        (["matrix", "--fault", "nonsense"], "there is no matrix row called 'nonsense'"),
        (["matrix", "--check", "nonsense"], "there is no check called 'nonsense'"),
        (["nonsense"], "invalid choice"),
        ([], "required"),
    ],
)
def test_misuse_is_exit_3_with_a_sentence(arguments, sentence, capsys):
    assert main(arguments) == 3
    assert sentence in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["exit_code"] == 3


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"]])
def test_help_is_no_misuse(arguments, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert "kvaudit lab" in capsys.readouterr().out


def test_faults_combine():
    both = combine(["stale_pages", "hidden_pool"])
    assert both.name == "stale_pages+hidden_pool"
    assert both.flavours == ("sglang",)
    assert both().count_is_right(1, 8)
    assert both().disclose("", {"max_total_num_tokens": 1, "version": "x"}) == {"version": "x"}
    assert combine([]) is Faults
    assert combine(["none"]) is Faults
