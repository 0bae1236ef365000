"""``kvaudit qualify``: the boundary of replicas that take no traffic, each at its own address."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvaudit.auditor.commands import probe, qualify
from kvaudit.auditor.commands.state_file import StateFile
from kvaudit.cli import main
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import in_process
from tests.auditor.checks.active import target_of


def given(*arguments: str) -> Any:
    return qualify.parser().parse_args(["--node", "http://127.0.0.1:9", *arguments])


def in_lab(
    *faults: str, state: StateFile | None = None, arguments: tuple[str, ...] = (), **options: Any
) -> Any:
    """The document of one node of its own, without any entry or key."""

    async def asked() -> Any:
        config = LabConfig(unified=True, **options)
        async with in_process(config, faults or ("none",)) as lab:
            with lab.joined():
                flags = given(*arguments)
                permission = probe.permission_of(flags, state, consent=True)
                target = target_of(lab, entry="", tenants=())
                targets = qualify.singly(target)
                return await qualify._qualify(targets, flags, replace(permission, where="newcomer"), state)

    return run_virtual(asked())


def test_a_clean_node_qualifies_its_build_in_one_run(tmp_path: Path) -> None:
    state = StateFile.opened(str(tmp_path / "state"), "")
    document, line = in_lab(state=state, arguments=("--seed", "3"), prefill_pool=11_040)
    assert document["verdict"] == "pass", line
    assert "boundary 2" in line
    [evidence] = StateFile.opened(str(state.path), "").evidence
    assert evidence.where == "newcomer"
    assert evidence.build
    assert sum(one.count for one in evidence.trials if one.stratum == "boundary") > 30


def test_less_is_kept_and_says_what_is_missing(tmp_path: Path) -> None:
    state = StateFile.opened(str(tmp_path / "state"), "")
    document, line = in_lab(state=state, arguments=("--seed", "3", "--budget", "300000"))
    assert document["verdict"] == "inconclusive"
    assert "of 20 effective trials" in line
    assert 3 < sum(one.weight for one in StateFile.opened(str(state.path), "").evidence[0].trials) < 20


def test_a_leaking_node_fails() -> None:
    document, line = in_lab("all_but_last_page", context=2_048, prefill_pool=4_096)
    assert document["exit_code"] == 1
    assert "tenant" in line


def test_each_node_is_asked_at_its_own_address_as_tenants_that_are_only_names() -> None:
    one, other = qualify.singly(qualify.chosen(given("--node", "http://127.0.0.1:8"))[0])
    assert (one.asked_at, other.asked_at) == ("http://127.0.0.1:9", "http://127.0.0.1:8")
    assert len({tenant.credentials.headers for tenant in one.tenants}) == 2
    assert not one.why_no_tenants


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fixed"], "give --state FILE as well"),
        (["--budget-minutes", "0"], "above 0"),
        (["--budget-minutes", "soon"], "no number of minutes"),
        (["--state", "/nowhere/at/all"], "its folder does not exist"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["qualify", "--node", "http://127.0.0.1:9", *arguments]) == 3
    assert said in capsys.readouterr().err
