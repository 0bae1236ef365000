"""The Ledger page: for auditors of every team, honest about what was verified, and a copy that proves itself."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from django.test import Client
from django.utils import timezone

from kvaudit.server.accounts.roles import Role
from kvaudit.server.accounts.services import role_group
from kvaudit.server.ledger import tasks, verify_job
from kvaudit.server.ledger.models import Entry, Verification
from kvaudit.server.ledger.services import Act, record, record_all
from tests.factories import a_user
from tests.server.ledger.test_chain_check import tamper
from tests.server.web.pages import page_text
from tests.waiting import PATIENCE

pytestmark = pytest.mark.django_db

PAGE = "/settings/ledger/"
ADDRESSES = (PAGE, f"{PAGE}state/", f"{PAGE}verify/", f"{PAGE}entries/")


@pytest.fixture
def auditor() -> Client:
    """Made without `grant_role`, which would be the first entry."""
    user = a_user("ada")
    user.groups.add(role_group(Role.AUDITOR))
    client = Client()
    client.force_login(user)
    return client


def read(client: Client, query: str = "") -> str:
    answer = client.get(f"{PAGE}{query}")
    assert answer.status_code == 200
    return page_text(answer)


@pytest.mark.parametrize("path", ADDRESSES)
def test_only_auditors_of_every_team_see_anything(people, path):
    record(actor="system:x", kind="secret.kind", subject="s")
    viewer = Client()
    viewer.force_login(a_user(role="viewer"))
    for client in (people.operator, people.stranger, viewer):
        answer = client.post(path) if path.endswith("verify/") else client.get(path)
        assert answer.status_code == 403
        assert b"secret.kind" not in answer.content
    assert not Verification.objects.exists()


def test_an_unverified_ledger_is_unknown_and_a_verified_one_intact(auditor):
    record(actor="system:x", kind="k", subject="run:7 of run:6")
    before = read(auditor)
    assert "headline-inconclusive" in before
    assert "that nobody has verified yet" in before
    answer = auditor.post(f"{PAGE}verify/", follow=True)
    assert answer.redirect_chain == [(PAGE, 302)]
    waiting = page_text(answer)
    assert "Waits for a worker" in waiting
    assert 'hx-trigger="every 1s"' in waiting
    work = Verification.objects.get()
    Verification.objects.update(asked_at=work.asked_at - timedelta(minutes=2))
    assert "see that workers run" in read(auditor)
    Verification.objects.update(started_at=work.asked_at, seen_at=work.asked_at - timedelta(minutes=2))
    assert "Its worker was lost" in read(auditor)
    tasks.verify(work.pk)
    part = page_text(auditor.get(f"{PAGE}state/"))
    assert "headline-pass" in part
    assert "hx-trigger" not in part
    after = read(auditor)
    assert re.search(r"Intact: 1 entry verified (now|\d+ s ago); 1 written since", after)
    assert "By <bdi>user:ada</bdi>" in after


def test_a_broken_ledger_is_a_fail_with_the_entry_named(auditor):
    for _ in range(3):
        record(actor="system:x", kind="k", subject="s")
    tamper("UPDATE ledger_entry SET subject = 'x' WHERE sequence = 2")
    tasks.verify(verify_job.begin(actor="system:beat").pk)
    page = read(auditor)
    assert "headline-fail" in page
    assert "Entry 2 was altered" in page
    assert "The 1 before it were in order." in page


def test_an_old_verification_is_not_said_to_hold(auditor):
    record(actor="system:x", kind="k", subject="s")
    tasks.verify(verify_job.begin(actor="system:beat").pk)
    Verification.objects.update(finished_at=timezone.now() - timedelta(days=3))
    page = read(auditor)
    assert "headline-inconclusive" in page
    assert "Not known" in page


def test_one_that_broke_off_does_not_hide_what_was_known_before(auditor, monkeypatch):
    record(actor="system:x", kind="k", subject="s")
    tasks.verify(verify_job.begin(actor="system:beat").pk)

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(verify_job, "verify_chain", broken)
    tasks.verify(verify_job.begin(actor="system:beat").pk)
    page = read(auditor)
    assert "headline-pass" in page
    assert "a later one failed" in page


def test_fewer_entries_than_were_verified_is_a_fail_without_a_new_walk(auditor):
    for _ in range(3):
        record(actor="system:x", kind="k", subject="s")
    tasks.verify(verify_job.begin(actor="system:beat").pk)
    tamper("DELETE FROM ledger_entry WHERE sequence > 1")
    page = read(auditor)
    assert "The ledger is broken: 3 entries were verified" in page
    assert "1 are left" in page
    assert "headline-fail" in page


def test_entries_lead_to_what_they_are_about_and_filters_hold(auditor):
    record_all(
        actor="user:bob",
        acts=[
            Act("run.finished", "run:7"),
            Act("pin.set", "deployment:chat-large pin sglang==1"),
            Act("incident.open", "incident:3 deployment:chat-large"),
            Act("odd", "run:99999999999999999999999"),
            Act("odd", "run:<script>alert(1)</script>"),
        ],
    )
    record(actor="system:beat", kind="plan.created", subject="plan:1")
    page = read(auditor)
    for address in ("/runs/7/", "/d/chat-large/", "/incidents/3/"):
        assert f'href="{address}"' in page
    assert "<script>alert" not in page
    rows = lambda query: re.findall(r'data-label="Kind"><bdi>([^<]+)', read(auditor, query))  # noqa: E731
    assert rows("?kind=run.") == ["run.finished"]
    assert rows("?actor=BEAT") == ["plan.created"]
    assert rows("?subject=deployment:chat-large") == ["pin.set"]
    assert "No entry matches these filters." in read(auditor, "?kind=nothing")


@pytest.mark.parametrize("query", ["before=zzz", "before=0", "before=99999999999999999999", "kind=%00", "actor=%E2%80%AE", "hash=%00",
                                   "subject=" + "x" * 10_000, "kind=%25", "hash=" + "f" * 5_000])  # fmt: skip
def test_odd_questions_never_break_it(auditor, query):
    record(actor="system:x", kind="k", subject="s")
    read(auditor, f"?{query}")


def test_pages_are_followed_by_the_last_entry_seen(auditor):
    record_all(actor="system:x", acts=[Act("k", f"s{number}") for number in range(120)])
    first = read(auditor)
    older = re.search(r'rel="next" href="(\?before=\d+)"', first)
    assert older is not None
    assert older[1] == "?before=71"
    assert "<bdi>s69</bdi>" in read(auditor, older[1])
    assert "This is the beginning of the ledger." in read(auditor, "?before=21")


def test_a_noted_hash_is_found_or_not(auditor):
    entry = record(actor="system:x", kind="k", subject="s")
    assert "Entry 1 of " in read(auditor, f"?hash={entry.hash.upper()}")
    assert "No entry has this hash." in read(auditor, f"?hash={'0' * 64}")
    assert "That is no hash of an entry" in read(auditor, "?hash=abc")


def test_the_page_takes_as_many_queries_for_any_ledger(auditor, django_assert_num_queries):
    record(actor="system:x", kind="k", subject="s")
    tasks.verify(verify_job.begin(actor="system:beat").pk)
    for _ in range(2):
        with django_assert_num_queries(12):
            read(auditor)
        record_all(actor="system:x", acts=[Act("k", f"run:{number}") for number in range(80)])


def test_the_copy_is_verified_by_what_the_manual_prints(auditor):
    record_all(actor="user:é\u202e", acts=[Act("run.finished", f"run:{number}") for number in range(9)])
    answer = auditor.get(f"{PAGE}entries/")
    assert answer["Content-Disposition"].endswith('.jsonl"')
    copy = b"".join(answer)
    lines = copy.splitlines()
    assert len(lines) == Entry.objects.count()
    assert sum(orjson.loads(line)["kind"] == "run.finished" for line in lines) == 9
    manual = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text()
    program = re.search(r"```python\n(.*?)```", manual, re.DOTALL)
    assert program is not None

    def judged(body: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-c", program[1]],
            input=body,
            capture_output=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    good = judged(copy)
    assert (good.returncode, good.stdout.decode().split()[-1]) == (0, orjson.loads(lines[-1])["hash"])
    assert judged(copy.replace(b"run:4", b"run:5")).returncode == 1
    assert judged(b"\n".join(lines[1:])).returncode == 1


def test_a_copy_that_breaks_off_says_so(auditor, monkeypatch):
    record(actor="system:x", kind="k", subject="s")

    def broken(*_):
        yield Entry.objects.first()
        raise RuntimeError("the database went away")

    monkeypatch.setattr("kvaudit.server.ledger.searching.in_order", broken)
    stream = iter(auditor.get(f"{PAGE}entries/"))
    next(stream)
    assert next(stream).startswith(b"export incomplete")
    with pytest.raises(RuntimeError):
        next(stream)


def test_hash_and_digest_are_told_apart(auditor):
    entry = record(actor="system:x", kind="k", subject="run:7", digest="ab" * 32)
    page = read(auditor)
    assert f'hash <span class="digest">{entry.hash[:8]}…</span>' in page
    assert f'digest <span class="digest">{"ab" * 4}…</span>' in page
