"""What the page says of a run's entry in the ledger, and that a changed row is found out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result, Run
from kvaudit.server.ledger.models import Verification
from kvaudit.server.web.runs.ledger_proof import proof_of
from tests.recorded import recorded
from tests.server.web import builders
from tests.server.web.pages import page_text

FAIL, PASS, OPEN = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE


@pytest.fixture
def run(pair):
    return builders.a_run(pair, {"pool": "fail", "version": "pass"}, measures=builders.SHORT_POOL)


def verified(entries: int, *, outcome: str = "intact", sentence: str = "") -> Verification:
    now = timezone.now()
    return Verification.objects.create(
        asked_by="system:beat", asked_at=now - timedelta(minutes=5), started_at=now, finished_at=now,
        wanted=entries, entries=entries, outcome=outcome, sentence=sentence,
    )  # fmt: skip


def proof(run):
    run = Run.objects.with_results().get(pk=run.pk)
    return proof_of(run, list(run.results.all()))


def test_results_as_recorded_in_a_chain_that_was_verified(run):
    entry = recorded(run)
    work = verified(entry.sequence)
    found = proof(run)
    assert (found.verdict, found.entry, found.verified_at) == (PASS, entry, work.finished_at)
    assert found.sentences[0] == "Its results still have the digest that was recorded."


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "pass"},
        {"summary": "All is well."},
        {"measures": {}},
        {"evidence": ["x"]},
        {"severity": "low"},
    ],
)
def test_a_changed_result_is_a_loud_fail(people, run, change):
    entry = recorded(run)
    verified(entry.sequence)
    Result.objects.filter(run=run, check_id="pool").update(**change)
    assert proof(run).verdict is FAIL
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "are not those that were recorded" in page.partition('class="columns"')[0], "above everything else"


def test_a_result_that_was_taken_away_or_a_verdict_of_the_run_that_was_changed(run):
    recorded(run)
    Run.objects.filter(pk=run.pk).update(verdict="pass")
    assert proof(run).verdict is FAIL
    Run.objects.filter(pk=run.pk).update(verdict="fail")
    assert proof(run).verdict is OPEN, "as recorded, in a chain that nobody verified"
    run.results.filter(check_id="version").delete()
    assert proof(run).verdict is FAIL


def test_never_verified_and_verified_before_the_entry(run):
    entry = recorded(run)
    assert "Nobody has verified the chain yet." in proof(run).sentences
    verified(entry.sequence - 1)
    found = proof(run)
    assert found.verdict is OPEN
    assert "before this entry was written" in found.sentences[1]


@pytest.mark.parametrize(("intact", "side"), [(0, "at or after the break"), (5_000, "before the break")])
def test_a_broken_chain(run, intact, side):
    recorded(run)
    verified(intact, outcome="broken", sentence="Entry 1 was altered: its hash is wrong.")
    found = proof(run)
    assert found.verdict is FAIL
    assert side in found.sentences[1]
    assert "Entry 1 was altered" in found.sentences[1]


def test_without_an_entry_nothing_is_proved(run, pair):
    assert proof(run).verdict is OPEN
    assert proof(builders.a_run(pair, state="running")).verdict is None
    assert proof(builders.a_run(pair, state="missed")).verdict is None


def test_an_entry_that_was_forged_later_does_not_count(run):
    entry = recorded(run)
    Result.objects.filter(run=run, check_id="pool").update(verdict="pass")
    recorded(run)
    found = proof(run)
    assert (found.verdict, found.entry) == (FAIL, entry)


def test_only_who_may_read_the_ledger_is_led_there(people, run, client):
    from tests.factories import an_admin

    entry = recorded(run)
    address = f"/settings/ledger/?subject=run:{run.pk}&amp;before={entry.sequence + 1}"
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert entry.digest in page
    assert address not in page
    admin = builders.as_user(client, an_admin("root"))
    assert address in page_text(admin.get(f"/runs/{run.pk}/"))
    listed = page_text(admin.get(address.replace("&amp;", "&")))
    assert f'href="/runs/{run.pk}/"' in listed
