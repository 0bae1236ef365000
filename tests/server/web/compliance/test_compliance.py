"""Compliance: who complies, since when, by waiver or truly; unknown is never shown as complying."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Overdue
from kvaudit.server.fleet.models import Deployment
from tests.factories import a_deployment, a_user
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders
from tests.server.web.pages import page_text


def text(client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return body.decode()


def lead(page: str) -> str:
    found = re.search(r'<p class="lead">(.*?)</p>', page, re.S)
    assert found
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", found[1])).strip()


def row_of(page: str, slug: str) -> list[str]:
    """Words of a deployment's cells, in order."""
    row = next(part for part in re.split(r"</?tr>", page) if f'href="/d/{slug}/"' in part)
    return re.findall(r'<span class="word">([a-z/ ]+)</span>', row)


@pytest.mark.parametrize("address", ["/compliance/", "/compliance/print/", "/compliance/csv/", "/waivers/",
                                     "/checklist/", "/summary/", "/summary/markdown/"])  # fmt: skip
def test_an_empty_fleet_is_a_page_too(people, address):
    assert text(people.viewer, address)


def test_truly_by_attestation_and_by_waiver_are_told_apart(people, pair):
    builders.a_state(pair, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "fail"})
    CheckState.objects.filter(check_id="session").delete()
    an_attestation(pair, "D")
    a_waiver(pair, "1")
    page = text(people.viewer, "/compliance/")
    assert row_of(page, "chat-large") == ["waived", "pass", "pass", "pass", "pass", "pass", "pass", "pass",
                                          "attested"]  # fmt: skip
    assert lead(page) == "1 of 1 deployment complies with every item: 1 only with a waiver."
    for shape in ("attested", "waived", "pass"):
        assert f'href="#shape-{shape}"' in page
        assert f'id="shape-{shape}"' in page


@pytest.mark.parametrize(
    "verdicts", [{}, {"pool": "pass"}, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "inconclusive"}]
)
def test_unknown_is_never_complying(people, pair, verdicts):
    if verdicts:
        builders.a_state(pair, verdicts)
    assert lead(text(people.viewer, "/compliance/")).startswith("0 of 1 deployment comply with every item")


def test_a_canary_that_fails_shows_through_every_waiver(people, pair):
    builders.a_state(pair, {**dict.fromkeys(EVERYTHING, "pass"), "canary": "fail"})
    a_waiver(pair, "4")
    a_waiver(None, "4", team=pair.team)
    page = text(people.viewer, "/compliance/")
    assert row_of(page, "chat-large")[3] == "fail"
    assert "not waivable" in page


def test_strangers_see_nothing_and_sums_hold_nothing_of_other_teams(people, pair):
    builders.a_state(pair, dict.fromkeys(EVERYTHING, "pass"))
    for path in ("/compliance/", "/compliance/print/", "/compliance/csv/", "/summary/", "/summary/markdown/"):
        assert "chat-large" not in text(people.stranger, path)
    assert people.stranger.get("/d/chat-large/items/1/").status_code == 404


def test_a_hundred_a_page_and_all_of_them_printed_and_exported(people):
    Deployment.objects.bulk_create(
        Deployment(slug=f"d-{number:03d}", team=people.team) for number in range(230)
    )
    page = text(people.viewer, "/compliance/")
    assert page.count('class="cell"') == 100 * 9
    after = re.search(r'rel="next" href="([^"]*)"', page)
    assert after
    second = text(people.viewer, "/compliance/" + after[1].replace("&amp;", "&"))
    assert 'href="/d/d-100/"' in second
    assert 'href="/d/d-099/"' not in second
    assert text(people.viewer, "/compliance/print/").count('class="cell"') == 230 * 9
    rows = list(csv.DictReader(io.StringIO(text(people.viewer, "/compliance/csv/"))))
    assert len(rows) == 230 * 9
    assert {row["status"] for row in rows} == {"inconclusive"}


def test_the_export_is_safe_to_open_and_says_what_the_page_says(people, pair):
    Deployment.objects.filter(pk=pair.pk).update(owner="=cmd|' /C calc'!A0", contact="\t@SUM(1)")
    builders.a_state(pair, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "fail"})
    rows = list(csv.DictReader(io.StringIO(text(people.viewer, "/compliance/csv/"))))
    assert [row["item"] for row in rows] == list("12345ABCD")
    assert [row["status"] for row in rows] == ["fail", *["pass"] * 8]
    assert rows[0]["owner"].startswith("'=")
    assert rows[0]["contact"].startswith("'\t@")
    assert rows[0]["reason"] == "failing: pool"


def test_until_when_and_by_whose_word_is_on_page_print_and_export(people, pair):
    builders.a_state(pair, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "fail"})
    until = timezone.now() + timedelta(days=5)
    waiver = a_waiver(pair, "1", expires_at=until, reason="=Hardware <b>arrives</b> in May.")
    day = f"{timezone.localtime(until):%Y-%m-%d}"
    assert f">to {day}<" in text(people.viewer, "/compliance/")
    printed = text(people.viewer, "/compliance/print/")
    assert f"waiver {waiver.pk} until" in printed
    said = re.sub("</?bdi[^>]*>", "", printed)
    assert (
        f"approved by {waiver.decided_by.get_username()}: =Hardware &lt;b&gt;arrives&lt;/b&gt; in May."
        in said
    )
    rows = list(csv.DictReader(io.StringIO(text(people.viewer, "/compliance/csv/"))))
    (row,) = [row for row in rows if row["status"] == "waived"]
    assert (row["item"], row["claim"]) == ("1", f"waiver {waiver.pk}")
    assert row["claim_reason"].lstrip("'") == "=Hardware <b>arrives</b> in May."
    assert row["claim_reason"].startswith("'"), "no formula"
    assert not any(row["claim"] for row in rows if row["status"] != "waived")


def test_waivers_that_wait_are_counted_where_they_are_decided(people, pair):
    assert "to decide" not in text(people.viewer, "/compliance/")
    asked = a_waiver(pair, "1", decision="pending", decided_by=None, decided_at=None)
    assert "to decide" not in text(people.viewer, "/compliance/"), "a viewer decides nothing"
    approver, asker = Client(), Client()
    approver.force_login(a_user(team=people.team, role="approver"))
    assert "Waivers (1 to decide)" in text(approver, "/compliance/")
    type(asked).objects.filter(pk=asked.pk).update(
        requester=(own := a_user(team=people.team, role="approver"))
    )
    asker.force_login(own)
    assert "to decide" not in text(asker, "/compliance/"), "nobody decides on their own"


def test_filters_narrow_page_print_and_export_alike(people, pair):
    builders.a_state(pair, dict.fromkeys(EVERYTHING, "pass"))
    bad = builders.a_pair("bad", team=people.team)
    builders.a_state(bad, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "fail"})
    for query, seen in (
        ("status=fail", {"bad"}),
        ("status=pass&item=1", {"chat-large"}),
        ("status=pass&item=2", {"bad", "chat-large"}),
        ("q=CHAT", {"chat-large"}),
        ("team=nobody", set()),
        ("status=nonsense&item=nonsense", set()),
    ):
        page = text(people.viewer, f"/compliance/?{query}")
        assert {slug for slug in ("bad", "chat-large") if f'href="/d/{slug}/items/' in page} == seen, query
        rows = csv.DictReader(io.StringIO(text(people.viewer, f"/compliance/csv/?{query}")))
        assert {row["deployment"] for row in rows} == seen, query


def test_as_of_a_day_shows_what_held_at_its_end(people, pair):
    now = timezone.now()
    Deployment.objects.update(created_at=now - timedelta(days=30))
    builders.a_state(pair, dict.fromkeys(EVERYTHING, "pass"), since=now - timedelta(days=9))
    day = (now - timedelta(days=12)).date().isoformat()
    assert "inconclusive" in row_of(text(people.viewer, f"/compliance/?as_of={day}"), "chat-large")
    later = (now - timedelta(days=5)).date().isoformat()
    page = text(people.viewer, f"/compliance/?as_of={later}")
    assert set(row_of(page, "chat-large")) == {"pass"}
    assert f"/items/1/?as_of={later}" in page
    assert "As it stood" in text(people.viewer, f"/d/chat-large/items/1/?as_of={day}")
    before = (now - timedelta(days=60)).date().isoformat()
    assert "existed then" in text(people.viewer, f"/compliance/?as_of={before}")


@pytest.mark.parametrize(
    ("asked", "said"),
    [("x", "“x” is no date"), ("2026-13-40", "is no date"), ("2026-09-01T14:30", "is no date"), ("%00", "is no date"),
     ("%E2%80%AE", "is no date"), ("%3Cscript%3E", "is no date"), ("9" * 5_000, "is no date"), ("2999-01-01", "future"),
     ("9999-12-31", "future")],
)  # fmt: skip
def test_a_day_that_makes_no_sense_is_said_and_neither_printed_nor_exported(people, pair, asked, said):
    for path in ("/compliance/", "/d/chat-large/items/1/"):
        page = text(people.viewer, f"{path}?as_of={asked}")
        alert = page.split('role="alert">', 1)[1].split("</p>", 1)[0]
        assert said in alert
        assert "Shown is how it stands now." in alert
        assert "<script" not in alert
        assert "\u202e" not in alert
    for path in ("/compliance/print/", "/compliance/csv/"):
        answer = people.viewer.get(f"{path}?as_of={asked}")
        assert answer.status_code == 400
        assert answer["Content-Type"].startswith("text/plain")
        assert said in page_text(answer)


@pytest.mark.parametrize("asked", ["", "%20", "today"])
def test_today_is_now_without_a_word(people, pair, asked):
    day = timezone.localdate().isoformat() if asked == "today" else asked
    page = text(people.viewer, f"/compliance/?as_of={day}")
    assert ">Now, <" in page
    assert 'role="alert"' not in page
    assert people.viewer.get(f"/compliance/csv/?as_of={day}").status_code == 200


@pytest.mark.parametrize(
    "query", ["after=%00", "sort=%27", "q=%00%E2%80%AE", "as_of=0001-01-01", "item=%00", "status=%00"]
)
def test_odd_addresses_are_answered(people, pair, query):
    for path in ("/compliance/", "/compliance/print/", "/compliance/csv/", "/compliance/trend/"):
        assert text(people.viewer, f"{path}?{query}") is not None
    assert text(people.viewer, f"/d/chat-large/items/1/?{query}")


def test_what_is_overdue_and_what_ends_is_listed_with_its_owner(people, pair):
    plan = builders.a_plan(pair)
    Overdue.objects.create(plan=plan, deployment=pair, since=timezone.now() - timedelta(hours=3))
    a_waiver(pair, "1", expires_at=timezone.now() + timedelta(days=2))
    an_attestation(pair, "D", expires_at=timezone.now() + timedelta(days=40))
    page = text(people.viewer, "/compliance/")
    assert "waiver of item <bdi>1</bdi>, <bdi>chat-large</bdi>" in page
    assert "attestation of item" not in page
    assert page.count("owner <bdi>Ada Example") == 2


@pytest.mark.parametrize(
    "path", ["/compliance/", "/compliance/print/", "/compliance/csv/", "/summary/", "/waivers/"]
)
def test_the_number_of_queries_does_not_grow_with_the_fleet(people, path):
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            text(people.viewer, path)
        return len(queries)

    a_waiver(a_deployment(team=people.team), "1")
    asked()  # sessions and content types settle
    counts = []
    for start, count in ((0, 100), (100, 400)):
        made = Deployment.objects.bulk_create(
            Deployment(slug=f"d-{number:03d}", team=people.team, owner=f"o{number % 7}")
            for number in range(start, start + count)
        )
        builders.a_state(made[0], dict.fromkeys(EVERYTHING, "pass"))
        states = CheckState.objects.filter(deployment=made[0])
        CheckState.objects.bulk_create(
            CheckState(
                deployment=each, check_id=state.check_id, verdict="pass" if each.pk % 3 else "fail",
                since=state.since, last_confirmed=state.last_confirmed, expires_at=state.expires_at,
                run_id=state.run_id, result_id=state.result_id,
            )
            for each in made[1:] for state in states
        )  # fmt: skip
        counts.append(asked())
    assert counts[0] == counts[1]
    assert counts[1] <= 30
