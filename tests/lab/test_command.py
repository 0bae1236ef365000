from __future__ import annotations

import json

import pytest

from kvaudit.lab.command import main
from kvaudit.lab.faults import combine, known
from kvaudit.lab.faults.base import Faults

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
]


def test_faults_lists_every_fault_with_its_report(capsys):
    assert main(["faults", "--json"]) == 0
    listed = {load["name"]: load for load in json.loads(capsys.readouterr().out)}
    assert set(listed) == set(SPECIFIED)
    without = {name for name, item in listed.items() if not item["reports"]}
    assert without <= {"none", "healthy", "flaky", "dripping", "bomb", "redirect"}
    assert all(len(item["about"]) > 20 for item in listed.values())
    assert main(["faults"]) == 0
    assert "sglang#30233" in capsys.readouterr().out


def test_every_fault_overrides_the_right_behaviour_somewhere():
    behaviour = set(vars(Faults)) - {"__init__", "__module__", "__doc__", "name", "reports", "flavours"}
    for fault in set(SPECIFIED) - {"none", "healthy"}:
        own = set(vars(known()[fault])) | {
            name for each in known()[fault].__mro__[1:-2] for name in vars(each)
        }
        assert own & behaviour, fault


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--fault", "nonsense"], "there is no fault called 'nonsense'"),
        (["serve", "--fault", "stale_pages", "--flavour", "vllm"], "does not exist in flavour 'vllm'"),
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
