"""Every case of `make redteam` as a test: a few in `make test`, all in `make drill`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.redteam import __main__ as table
from tests.redteam import case as cases
from tests.redteam.case import Case
from tests.redteam.run import audit, unmet
from tests.redteam.wanted import AllPass, Check, Found, NeverAllPass, Rule

KNOWN = list(cases.known())


def _marked(case: Case):
    marks = [] if case.fast else [pytest.mark.drill]
    if case.open:
        marks.append(pytest.mark.xfail(reason=case.open, strict=True, raises=AssertionError))
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [_marked(case) for case in KNOWN])
def test_what_is_wanted_comes_out(case):
    found = audit(case)
    assert not unmet(case, found), f"{found}\n" + "\n".join(each.summary for each in found.results.values())


def test_every_case_has_a_name_of_its_own():
    names = [case.name for case in KNOWN]
    assert len(set(names)) == len(names) > 90


def test_leaks_and_healthy_oddities_are_about_as_many():
    kinds = [case.kind for case in KNOWN]
    assert min(kinds.count("leak"), kinds.count("odd")) * 3 > len(kinds)


def test_not_all_pass_is_wanted_only_where_a_control_passes_all():
    controls = {case.setting for case in KNOWN if case.kind == "control" and AllPass() in case.wanted}
    assert [c.name for c in KNOWN if NeverAllPass() in c.wanted and c.setting not in controls] == []


PASSIVE = Case("passive", "control", (AllPass(),), checks=("pool",))


@pytest.mark.parametrize(
    ("wanted", "note", "code", "mark"),
    [
        (AllPass(), "", 0, "yes"),
        (Check("pool", "fail"), "", 1, "NO"),
        (Check("pool", "fail"), "it is known", 0, "open"),
        (AllPass(), "it is known", 1, "NO: it is met now, remove its `open`"),
    ],
)
def test_a_difference_is_exit_1(monkeypatch, capsys, wanted: Rule, note, code, mark):
    monkeypatch.setattr(table, "known", lambda: [replace(PASSIVE, wanted=(wanted,), open=note)])
    assert table.main([]) == code
    assert capsys.readouterr().out.splitlines()[1].endswith(f" {mark}")


def test_a_name_that_begins_no_case_is_exit_1(capsys):
    assert table.main(["nosuchcase"]) == 1


def test_a_case_that_never_did_what_it_is_about_is_unmet():
    case = replace(PASSIVE, kind="leak")
    assert unmet(case, Found({}, (), 9, 900)) == "asked there 0 times"
    assert unmet(case, Found({}, (7,), 9, 900)) == ""
