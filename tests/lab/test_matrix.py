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
from kvaudit.lab.faults.base import Nature


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


SETTINGS_FAULT = {("none", "pool"), ("fixed_0_5_21", "pool"), ("fixed_0_5_21", "version"), ("vllm", "exposure"),
                  ("sse_error_in_200", "pool"), ("wedge_for_minutes", "pool")}  # fmt: skip
"""Fails that a healthy engine earns by its settings: a pool below the context, an old release, an open route."""


def test_of_a_healthy_engine_no_check_is_expected_to_fail():
    healthy = [row for row in ROWS if row.healthy]
    assert len(healthy) > 12
    failing = {
        (row.name, check) for row in healthy for check in CHECKS if "fail" in row.expects(check).split("|")
    }
    assert failing == SETTINGS_FAULT
    assert not any(check in checks.ACTIVE for _, check in failing), "what asks prompts has nothing to find"


def test_whatever_leaks_must_not_pass_everywhere():
    leaking = [row for row in ROWS if Nature.LEAKS in row.natures]
    assert len(leaking) > 25
    assert all(row.together == "not pass" for row in leaking)
    for row in leaking:
        wanted = [
            set(row.expects(check).split("|")) for check in CHECKS if check not in expectations.NOT_APPLICABLE
        ]
        assert any("pass" not in verdicts for verdicts in wanted), row.name


def test_open_cells_are_those_of_checks_and_say_what_is_lacking():
    for row in ROWS:
        assert set(row.open) <= set(CHECKS), row.name
        assert all(len(lacks) > 10 for lacks in row.open.values())


ODDITIES = [row for row in ROWS if row.name in {row.name for row in expectations.ODDITIES}]
CHEAP = ("accounting", "rejection", "coherence")


def _false_fails(row, wanted):
    found = list(matrix.cells([row], wanted))
    assert {cell.healthy for cell in found} == {True}
    return {cell.check: cell.summary for cell in found if cell.false_fail and not cell.open}


@pytest.mark.parametrize("row", ODDITIES, ids=lambda row: row.name)
def test_zero_false_fails_over_healthy_oddities(row):
    assert _false_fails(row, [*checks.PASSIVE, *CHEAP]) == {}


@pytest.mark.drill
@pytest.mark.parametrize("row", ODDITIES, ids=lambda row: row.name)
def test_zero_false_fails_over_healthy_oddities_by_every_check(row):
    assert _false_fails(row, [check for check in CHECKS if check not in expectations.NOT_APPLICABLE]) == {}


def _one(
    monkeypatch, expected: Mapping[str, str], lacks: Mapping[str, str] | None = None, fault="stale_pages"
):
    row = Expectation(fault, (fault,), expected, expectations.SMALL, open=lacks or {})
    monkeypatch.setattr(matrix, "ROWS", (row,))


@pytest.mark.parametrize(
    ("expected", "lacks", "mark", "code"),
    [
        ("fail", "", "ok", 0),
        ("pass", "", "DIFF", 1),
        ("pass", "eyes for it", "open", 0),
        ("fail", "eyes for it", "DIFF", 1),
    ],
)
def test_a_known_difference_is_open_and_fails_when_it_is_none_any_more(
    monkeypatch, capsys, expected, lacks, mark, code
):
    _one(monkeypatch, {"pool": expected}, {"pool": lacks})
    assert matrix.command([], ["pool"], as_json=False, jobs=1) == code
    out = capsys.readouterr().out
    assert out.startswith(f"{mark:<4} stale_pages")
    assert f"1 cells, {code} different from what is expected, {int(mark == 'open')} open" in out
    assert ("take away the mark" in out) is (mark == "DIFF" and expected == "fail")


@pytest.mark.parametrize(
    ("lacks", "mark"), [({}, "DIFF"), ({"prefix": "questions as the third tenant"}, "open")]
)
def test_a_leak_that_passes_everywhere_is_a_difference_unless_a_check_is_known_to_lack_it(lacks, mark):
    row = Expectation("third_tenant", ("third_tenant",), {"prefix": "fail"}, open=lacks)
    *_, together = matrix.cells([row], checks.PASSIVE)
    assert (together.check, together.expected, together.found) == ("(roll-up)", "not pass", "pass")
    assert together.mark == mark


def test_a_false_fail_is_counted_whether_it_is_open_or_not(monkeypatch, capsys):
    _one(monkeypatch, {"pool": "pass"}, {"pool": "a larger pool"}, fault="none")
    assert matrix.command([], ["pool", "version"], as_json=False, jobs=1) == 0
    assert "2 cells of healthy engines and oddities, 1 false fails" in capsys.readouterr().out


def test_cells_come_in_order_however_many_run_at_a_time():
    rows = [row for row in ROWS if row.name in ("healthy", "stale_pages")]
    wanted = ["pool", "version", "session"]
    one, two = list(matrix.cells(rows, wanted)), list(matrix.cells(rows, wanted, jobs=2))
    assert [(cell.row, cell.check, cell.found) for cell in one] == [
        (cell.row, cell.check, cell.found) for cell in two
    ]
    assert len(one) == 6


@pytest.mark.parametrize(("expected", "code"), [("fail", 0), ("pass", 1)])
def test_a_difference_is_exit_1(monkeypatch, capsys, expected, code):
    _one(monkeypatch, {"pool": expected})
    assert matrix.command([], ["pool"], as_json=True, jobs=1) == code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "stale_pages" in err, "whoever waits for the document sees how far it is"
    assert document["schema"] == "kvaudit.matrix/1"
    (cell,) = document["cells"]
    assert (cell["check"], cell["found"], cell["severity"]) == ("pool", "fail", "critical")
    assert document["different"] == code


def test_a_check_that_does_not_apply_is_shown_and_not_counted(monkeypatch, capsys):
    _one(monkeypatch, {"pool": "fail"})
    assert matrix.command([], ["pool", "session"], as_json=False, jobs=1) == 0
    out = capsys.readouterr().out
    assert "n/a  stale_pages                 session      the lab serves no session API" in out
    assert "1 cells, 0 different" in out
    assert "not applicable: session (the lab serves no session API)" in out


def test_only_checks_that_exist_can_be_not_applicable():
    assert set(expectations.NOT_APPLICABLE) <= set(checks.MODULES)
    assert set(expectations.NOT_APPLICABLE) < set(CHECKS)
