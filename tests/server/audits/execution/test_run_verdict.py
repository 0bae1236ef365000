"""Verdict, sentence and digest of a run, and values that survive jsonb."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.evidence.canonical import clean
from kvaudit.server.audits.execution import run_verdict


@dataclass
class Row:
    check_id: str
    verdict: str
    attempt: int = 1
    warn: bool = False
    summary: str = "because"
    severity: str = ""
    measures: dict = field(default_factory=dict)
    next_step: str = ""
    does_not_prove: str = ""
    evidence: list = field(default_factory=list)
    observed_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([Row("pool", "pass"), Row("version", "pass")], Verdict.PASS),
        ([Row("pool", "pass")], Verdict.INCONCLUSIVE),
        ([], Verdict.INCONCLUSIVE),
        ([Row("pool", "fail")], Verdict.FAIL),
        ([Row("pool", "pass"), Row("version", "nonsense")], Verdict.ERROR),
        # A fail of any attempt stands; otherwise the latest attempt counts.
        ([Row("pool", "fail", 1), Row("pool", "pass", 2), Row("version", "pass", 2)], Verdict.FAIL),
        ([Row("pool", "error", 1), Row("pool", "pass", 2), Row("version", "pass", 2)], Verdict.PASS),
        ([Row("pool", "pass", 1), Row("pool", "error", 2), Row("version", "pass", 2)], Verdict.ERROR),
        ([Row("pool", "pass", 2), Row("pool", "error", 1), Row("version", "pass", 2)], Verdict.PASS),
    ],
)
def test_verdict(rows, verdict):
    assert run_verdict.verdict_of(["pool", "version"], rows) is verdict


def test_sentence():
    checks = ["pool", "version"]
    rows = [Row("pool", "pass", warn=True), Row("version", "pass")]
    assert run_verdict.sentence(checks, rows, Verdict.PASS) == "pool, version: pass, with warnings from pool."
    assert run_verdict.sentence(checks, [Row("version", "fail")], Verdict.FAIL) == "version: because"
    assert (
        run_verdict.sentence(checks, [Row("pool", "pass")], Verdict.INCONCLUSIVE) == "No result of version."
    )
    assert run_verdict.sentence([], [], Verdict.INCONCLUSIVE) == "Nothing was checked."


def test_the_digest_does_not_depend_on_the_order_of_rows_but_on_every_field():
    rows = [Row("pool", "pass"), Row("version", "pass"), Row("pool", "fail", 2)]
    digest = run_verdict.digest({"id": 1}, rows)
    assert run_verdict.digest({"id": 1}, reversed(rows)) == digest
    assert run_verdict.digest({"id": 2}, rows) != digest
    for name in ("verdict", "summary", "severity", "next_step", "does_not_prove"):
        changed = [Row("pool", "pass"), Row("version", "pass"), Row("pool", "fail", 2)]
        setattr(changed[0], name, "other")
        assert run_verdict.digest({"id": 1}, changed) != digest, name


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(value=json_like)
def test_clean_values_are_json_and_stay_as_they_are(value):
    once = clean(value)
    assert json.loads(json.dumps(once, allow_nan=False)) == once
    assert clean(once) == once
    assert "\\u0000" not in json.dumps(once)


@pytest.mark.django_db
@given(value=json_like)
def test_clean_values_come_back_from_jsonb_unchanged(value):
    from django.db import connection

    once = clean(value)
    with connection.cursor() as cursor:
        cursor.execute("SELECT (%s::jsonb)::text", [json.dumps(once)])
        back = json.loads(cursor.fetchone()[0])
    assert json.dumps(back, sort_keys=True) == json.dumps(once, sort_keys=True)
