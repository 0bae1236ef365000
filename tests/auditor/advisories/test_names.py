"""Names that would decide nothing are refused with the name that was meant, wherever they are given."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.advisories import names
from kvaudit.auditor.advisories.load import shipped
from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.auditor.targets import TargetError, from_flags
from kvaudit.cli import main


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("mooncake", "mooncake"),
        ("mooncake-transfer-engine", "mooncake"),
        ("mooncake_transfer_engine", "mooncake"),
        ("Mooncake-Transfer-Engine-CUDA13", "mooncake"),
        ("LMCache", "lmcache"),
        ("nixl-cu12", "nixl"),
        ("ai-dynamo", "dynamo"),
        ("tensorrt_llm", "trtllm"),
        ("TensorRT-LLM", "trtllm"),
        ("vllm_ascend", "vllm-ascend"),
        ("llama.cpp", "llamacpp"),
    ],
)
def test_packages_are_other_names_of_components(given: str, known: str) -> None:
    assert names.component(given) == known


@pytest.mark.parametrize(
    ("read", "given", "meant"),
    [
        (names.component, "lm-cache", "lmcache"),
        (names.component, "moonkcake", "mooncake"),
        (names.component, "mooncake-transfer-engin", "mooncake-transfer-engine"),
        (names.condition, "hicache_storrage", "hicache_storage"),
        (names.condition, "SSD_offload", "ssd_offload"),
        (names.condition, "ssd-offload", "ssd_offload"),
    ],
)
def test_the_name_that_was_meant(read: Any, given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {meant}\\?"):
        read(given)


def test_every_name_that_an_advisory_asks_for_is_known() -> None:
    for advisory in shipped().advisories:
        assert [names.condition(condition) for condition in advisory.conditions] == list(advisory.conditions)
        for each in (advisory.engine, *dict(advisory.pair)):
            assert names.component(each) == each
    assert set(names.PACKAGES.values()) <= names.components()


def described(line: str) -> str:
    return (
        f"schema: kvaudit.fleet/1\ndeployments:\n  - slug: a\n    {line}\n"
        "    nodes: [{url: 'http://127.0.0.1:9'}]\n"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("conditions: {hicache_storrage: false}", "did you mean hicache_storage?"),
        ("conditions: {SSD_offload: true}", "did you mean ssd_offload?"),
        ("components: {lm-cache: 0.5.2}", "did you mean lmcache?"),
        ("components: {zzz: 0.5.2}", "would decide nothing"),
        ("pins: ['sglnag>=0.5.22']", "did you mean sglang?"),
        ("pins: ['sgl>=0.5.22']", "for no engine that is read"),
        ("pins: ['lmcache>=0.5.22']", "for no engine that is read"),
        ("plans: [{checks: [canry], every: 1h}]", "did you mean canary?"),
        ("engin: sglang", "did you mean engine?"),
        ("windows: [{days: [mon], frm: '01:00', to: '02:00'}]", "did you mean from?"),
        ("tenants: [{name: a, keyenv: KEY_A}]", "did you mean key_env?"),
    ],
)
def test_a_fleet_file_with_a_misspelt_name(line: str, said: str) -> None:
    problems = parse_fleet(described(line)).problems
    assert any(said in problem.sentence for problem in problems), problems


def test_a_package_in_a_fleet_file_is_its_component() -> None:
    [deployment] = parse_fleet(described("components: {mooncake-transfer-engine: 0.3.10}")).deployments
    assert deployment.components == (("mooncake", "0.3.10"),)
    twice = parse_fleet(described("components: {mooncake-transfer-engine: 0.3.10, mooncake: 0.3.13}"))
    assert "twice" in twice.problems[0].sentence


def test_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--node", "http://127.0.0.1:9", "--pin", "sglnag>=0.5.99"]) == 3
    assert "did you mean sglang?" in capsys.readouterr().err
    assert main(["probe", "version", "--node", "http://127.0.0.1:9", "--pin", "mooncake>=0.5"]) == 3
    assert main(["probe", "versoin", "--node", "http://127.0.0.1:9"]) == 3
    assert "version" in capsys.readouterr().err
    with pytest.raises(TargetError, match="did you mean hicache_storage"):
        from_flags(["http://127.0.0.1:9"], conditions={"hicache_storag": True}, environ={})


MATCH = ("advisories", "match", "--engine", "sglang", "--version", "0.5.22")
STORE = ("--condition", "mooncake_store", "--condition", "ssd_offload")


@pytest.mark.parametrize("name", ["mooncake", "mooncake-transfer-engine", "Mooncake_Transfer_Engine"])
def test_match_by_a_packages_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MATCH, "--component", f"{name}=0.3.10", *STORE]) == 1
    assert "is affected by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--component", "lm-cache=0.5.2"), "did you mean lmcache?"),
        (("--condition", "SSD_offload"), "did you mean ssd_offload?"),
        (("--condition", "hicache_storrage=false"), "did you mean hicache_storage?"),
        (("--engine", "sglnag"), "did you mean sglang?"),
    ],
)
def test_match_with_a_misspelt_name(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MATCH, *arguments]) == 3
    assert said in capsys.readouterr().err
