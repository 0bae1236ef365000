from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kvaudit.auditor import checks
from kvaudit.auditor.checks import MODULES as CHECKS
from kvaudit.auditor.verdict import Verdict
from kvaudit.lab import expectations, matrix
from kvaudit.lab.expectations import ROWS, Expectation
from kvaudit.lab.faults import known


def test_every_fault_has_a_row_and_every_check_a_column():
    assert {fault for row in ROWS for fault in row.faults} == set(known())
    assert set(CHECKS) >= {"pool", "canary", "session"}


def test_expectations_are_written_in_verdicts_of_known_checks():
    verdicts = {verdict.value for verdict in Verdict}
    for row in ROWS:
        assert set(row.expected) <= set(CHECKS), row.name
        for check in CHECKS:
            assert set(row.expects(check).split("|")) <= verdicts, (row.name, check)


def test_every_check_fails_somewhere_and_passes_on_the_healthy_engine():
    for check in CHECKS:
        if check in expectations.NOT_APPLICABLE:
            continue
        assert any("fail" in row.expects(check).split("|") for row in ROWS), check
        assert ROWS[0].expects(check) == "pass"


def test_a_clean_cache_audit_would_not_have_found_the_incident():
    row = next(row for row in ROWS if row.name == "stale_pages")
    assert (row.expects("accounting"), row.expects("prefix")) == ("pass", "pass")


@pytest.mark.parametrize("fault", ["healthy", "stale_pages", "hidden_pool", "capacity_change", "dripping"])
def test_the_passive_checks_find_what_is_expected(fault):
    row = next(row for row in ROWS if row.name == fault)
    for cell in matrix.cells([row], checks.PASSIVE):
        assert cell.agrees, f"{cell.check}: {cell.found}, expected {cell.expected}: {cell.summary}"


def _one(monkeypatch, expected: Mapping[str, str]):
    monkeypatch.setattr(
        matrix, "ROWS", (Expectation("stale_pages", ("stale_pages",), expected, expectations.SMALL),)
    )


@pytest.mark.parametrize(("expected", "code"), [("fail", 0), ("pass", 1)])
def test_a_difference_is_exit_1(monkeypatch, capsys, expected, code):
    _one(monkeypatch, {"pool": expected})
    assert matrix.command([], ["pool"], as_json=True) == code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "stale_pages" in err, "whoever waits for the document sees how far it is"
    assert document["schema"] == "kvaudit.matrix/1"
    (cell,) = document["cells"]
    assert (cell["check"], cell["found"], cell["severity"]) == ("pool", "fail", "critical")
    assert document["different"] == code


def test_a_check_that_does_not_apply_is_shown_and_not_counted(monkeypatch, capsys):
    _one(monkeypatch, {"pool": "fail"})
    assert matrix.command([], ["pool", "session"], as_json=False) == 0
    out = capsys.readouterr().out
    assert "n/a  stale_pages          session      the lab serves no session API" in out
    assert "1 cells, 0 different" in out
    assert "not applicable: session (the lab serves no session API)" in out


def test_only_checks_that_exist_can_be_not_applicable():
    assert set(expectations.NOT_APPLICABLE) <= set(checks.MODULES)
    assert set(expectations.NOT_APPLICABLE) < set(CHECKS)
