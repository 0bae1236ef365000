"""Exposure: the window, a sentence that is never a plain no, and request logs held against it."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Result, Run
from kvaudit.server.fleet.models import FingerprintChange, Tenant
from kvaudit.server.inquiries import tasks
from kvaudit.server.inquiries.models import LogImport, RequestLog
from tests.server.web import builders
from tests.server.web.pages import page_text

EVIL = "=cmd()<script>alert(1)</script>\u202e\x00" + "x" * 900
HEAD = "time,prompt_tokens,tenant,id,prefill_seconds\n"


def since(deployment, check, days, **fields):
    CheckState.objects.filter(deployment=deployment, check_id=check).update(
        since=timezone.now() - timedelta(days=days), **fields
    )


@pytest.fixture
def open_zone(pair):
    """The danger zone has been open for five days; nothing else is known."""
    builders.a_state(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    since(pair, "pool", 5)
    return pair


def test_never_tested_is_not_known(people, pair):
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "Not known: 30 d" in page
    assert "100.0\u00a0%" in page
    assert "canary had never run; rejection had never run" in page


def test_an_open_danger_zone(people, open_zone):
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "Possibly: the danger zone was open for 5 d" in page
    assert "prompts of 681,274 to 1,048,569 tokens would reach the rejection path" in page
    assert "prompt_tokens &gt;= 681274 AND prompt_tokens &lt; 1048570" in page


def test_a_leak_is_a_yes(people, open_zone):
    builders.a_state(open_zone, {"canary": "fail"})
    since(open_zone, "canary", 2)
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "It was shown leaking for 2 d" in page
    assert "Whether anybody’s request met it, only a request log can tell: import one." in page
    assert "Yes:" not in page
    assert "For another 3 d" in page or "For another 2 d 23 h" in page  # two clocks were read
    assert "canary failed critically" in page


def test_a_leak_that_goes_on_does_not_say_that_it_ended(people, open_zone):
    builders.a_state(open_zone, {"canary": "fail"})
    since(open_zone, "canary", 2)
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "Nothing has shown that it ended." in page
    assert "What shows the end" not in page


def ended(pair, days, *checks):
    """A leak until ``days`` ago; then these checks passed. Returns the run that passed."""
    now = timezone.now()
    builders.a_state(pair, {"canary": "fail"})
    at = now - timedelta(days=days)
    since(pair, "canary", 9, closed_at=at, last_confirmed=at)
    if not checks:
        return None
    run = builders.a_state(pair, dict.fromkeys(checks, "pass"))
    mine = CheckState.objects.filter(deployment=pair, closed_at=None, check_id__in=checks)
    mine.update(since=at, last_confirmed=now, fingerprint="0123456789abcdef")
    return run


def test_a_leak_that_ended_says_when_and_which_run_shows_it(people, pair):
    run = ended(pair, 3, "canary", "rejection")
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    day = f"{timezone.now() - timedelta(days=3):%Y-%m-%d}"
    assert f"It had ended by {day}" in page
    assert f"run {run.pk} found no leak within its bound." in page
    assert f'What shows the end: <a href="/runs/{run.pk}/">run {run.pk}</a>' in page
    assert "nothing has shown since that it ended" not in page


def test_what_is_not_bounded_afterwards_is_no_end(people, pair):
    ended(pair, 3, "canary")
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "no valid pass of canary and rejection covers the time since." in page
    assert "It had ended" not in page


def test_passes_bound_and_say_so(people, pair):
    run = builders.a_state(pair, {"canary": "pass", "rejection": "pass"})
    for check in ("canary", "rejection"):
        since(pair, check, 40, fingerprint="0123456789abcdef")
    Result.objects.filter(run=run, check_id="canary").update(measures={"bound": 0.0489})
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "fewer than 4.9% of requests like ours" in page
    assert "That is a bound, not a no." in page
    assert "4.89\u00a0%" in page
    assert '<span class="digest nowrap">01234567</span>' in page
    lines = b"".join(people.viewer.get("/d/chat-large/exposure/csv/").streaming_content).decode().splitlines()
    assert lines[1].endswith(",0.0489,0123456789abcdef,")


def test_passes_of_two_configurations_bound_nothing(people, pair):
    builders.a_state(pair, {"canary": "pass", "rejection": "pass"})
    since(pair, "canary", 40, fingerprint="aaaaaaaaaaaaaaaa")
    since(pair, "rejection", 40, fingerprint="bbbbbbbbbbbbbbbb")
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "Not known: 30 d" in page
    assert "canary had passed on fingerprint aaaaaaaa, rejection on fingerprint bbbbbbbb" in page
    since(pair, "rejection", 40, fingerprint="")
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "Not known: 30 d" in page
    assert "rejection on an unknown fingerprint" in page


def test_a_digest_that_came_after_the_result_is_that_of_the_run(people, pair):
    run = builders.a_state(pair, {"canary": "pass", "rejection": "pass"})
    for check in ("canary", "rejection"):
        since(pair, check, 40)
    Run.objects.filter(pk=run.pk).update(fingerprint="0123456789abcdef")
    assert "Not shown at any time" in page_text(people.viewer.get("/d/chat-large/exposure/"))


def test_a_zone_that_nobody_looked_at_again_stays_open_and_says_so(people, open_zone):
    now = timezone.now()
    looked = now - timedelta(days=19)
    since(
        open_zone, "pool", 20, last_confirmed=looked, expires_at=now - timedelta(days=12), fingerprint="one"
    )
    page = page_text(people.viewer.get("/d/chat-large/exposure/"))
    assert "Possibly: the danger zone was open for 20 d" in page
    assert "For 12 d of that nobody looked again with a result" in page
    assert f"not looked at again with a result since {looked:%Y-%m-%d %H:%M} UTC" in page
    assert page.count("prompt_tokens &gt;= 681274 AND") == 2  # one opening, in SQL and in BigQuery
    lines = b"".join(people.viewer.get("/d/chat-large/exposure/csv/").streaming_content).decode().splitlines()
    assert len(lines) == 4
    assert lines[3].endswith(f",681274,1048570,,one,{looked.isoformat()}")


def test_every_length_that_a_fail_endangered_while_it_lasted_is_told(people, pair):
    now = timezone.now()
    run = builders.a_run(pair, {"pool": "fail"}, at=now - timedelta(days=2), measures={"danger_zone": "odd"})
    for start, end, zone in ((9, 6, (1, 2_000_000)), (5, None, (670_000, 1_048_999))):
        CheckState.objects.create(
            deployment=pair, check_id="pool", verdict="fail", severity="high", run=run, result=run.results.get(),
            since=now - timedelta(days=start), last_confirmed=now - timedelta(days=end or 2),
            expires_at=now + timedelta(days=5), closed_at=None if end is None else now - timedelta(days=end),
            zone_low=zone[0], zone_high=zone[1],
        )  # fmt: skip
    for query in ("", f"?from={now - timedelta(days=2):%Y-%m-%d}"):
        page = page_text(people.viewer.get(f"/d/chat-large/exposure/{query}"))
        assert "prompts of 670,000 to 1,048,998 tokens would reach the rejection path" in page
        assert "prompt_tokens &gt;= 670000 AND prompt_tokens &lt; 1048999" in page
    assert "prompts of 1 to 1,999,999 tokens" in page_text(people.viewer.get("/d/chat-large/exposure/"))


def test_a_capacity_change_ends_a_zone_that_had_aged(people, open_zone):
    now = timezone.now()
    since(open_zone, "pool", 20, last_confirmed=now - timedelta(days=19), expires_at=now - timedelta(days=12))
    change = FingerprintChange(
        deployment=open_zone,
        node=open_zone.nodes.first(),
        at=now - timedelta(days=9, hours=20),
        significant=False,
        summary="x",
    )
    change.save()
    assert "danger zone was open for 20 d" in page_text(people.viewer.get("/d/chat-large/exposure/"))
    FingerprintChange.objects.update(significant=True)
    assert "danger zone was open for 10 d" in page_text(people.viewer.get("/d/chat-large/exposure/"))


def test_the_window_is_in_the_url(people, open_zone):
    now = timezone.now()
    before = f"{now - timedelta(days=20):%Y-%m-%d}"
    page = page_text(
        people.viewer.get(f"/d/chat-large/exposure/?from={before}&to={now - timedelta(days=10):%Y-%m-%d}")
    )
    assert "Not known" in page
    assert f'value="{before}"' in page


@pytest.mark.parametrize(
    "query",
    ["from=soon", "from=2026-02-30", "to=1999-01-01&from=2020-01-01", "from=2999-01-01", "from=0001-01-01", "to=%00",
     "from=9999-12-31", "from=1970-01-01", "to=" + "9" * 400, "from=%E2%80%AE"],
)  # fmt: skip
def test_odd_windows_are_answered_in_words(people, open_zone, query):
    answer = people.viewer.get(f"/d/chat-large/exposure/?{query}")
    assert answer.status_code == 200
    assert 'role="alert"' in page_text(answer)
    assert "Shown are the last 30 days." in page_text(answer)
    answer = people.viewer.get(f"/d/chat-large/exposure/csv/?{query}")
    assert answer.status_code == 400
    assert answer["Content-Type"].startswith("text/plain")
    assert page_text(answer).endswith(".")


def test_a_stranger_finds_nothing(people, open_zone):
    assert people.stranger.get("/d/chat-large/exposure/").status_code == 404
    assert people.stranger.get("/d/chat-large/exposure/csv/").status_code == 404
    assert people.stranger.get("/d/chat-large/exposure/import/").status_code == 404


def test_csv_has_a_line_for_every_span(people, open_zone):
    lines = b"".join(people.viewer.get("/d/chat-large/exposure/csv/").streaming_content).decode().splitlines()
    assert len(lines) == 3
    assert "danger zone open" in lines[2]
    assert lines[2].endswith("681274,1048570,,,")


def test_the_number_of_queries_is_fixed(people, open_zone, django_assert_max_num_queries):
    people.viewer.get("/d/chat-large/exposure/")
    with django_assert_max_num_queries(14) as few:
        people.viewer.get("/d/chat-large/exposure/")
    for _ in range(5):
        CheckState.objects.filter(closed_at=None).update(closed_at=timezone.now())
        builders.a_state(open_zone, {"canary": "inconclusive", "rejection": "pass"})
    with django_assert_max_num_queries(len(few.captured_queries)):
        people.viewer.get("/d/chat-large/exposure/")


def send(client, body, **more):
    file = io.BytesIO(body.encode() if isinstance(body, str) else body)
    file.name = more.pop("name", "requests.csv")
    return client.post("/d/chat-large/exposure/import/", {"file": file, **more})


def imported(client, body, **more):
    """The address of the log that a worker made of what was sent."""
    answer = send(client, body, **more)
    work = LogImport.objects.latest("pk")
    assert answer["Location"] == f"/d/chat-large/exposure/imports/{work.pk}/"
    tasks.import_log(work.pk)
    work.refresh_from_db()
    assert work.state == "finished"
    return f"/d/chat-large/exposure/logs/{work.log_id}/"


def a_log(*tenants, tokens=700_000):
    now = timezone.now() - timedelta(days=1)
    return HEAD + "".join(
        f"{now.isoformat()},{tokens},{tenant},r-{n},2.5\n" for n, tenant in enumerate(tenants)
    )


def test_a_log_is_imported_and_shown_without_names(people, open_zone):
    Tenant.objects.create(deployment=open_zone, name="acme")
    address = imported(people.auditor, a_log("acme", "acme", "nobody-knows"))
    page = page_text(people.viewer.get(address))
    assert "3 requests of 2 tenants lay inside the danger zone." in page
    assert ">acme<" in page  # the fleet file names it
    assert "nobody-knows" not in page
    page = page_text(people.viewer.get(f"{address}?name=nobody-knows"))
    assert "1 of its 1 request in the window lay inside." in page
    lines = b"".join(people.viewer.get(f"{address}csv/").streaming_content).decode()
    assert len(lines.splitlines()) == 4
    assert "nobody-knows" not in lines
    assert "requests.csv" in page_text(people.viewer.get("/d/chat-large/exposure/"))


def test_a_zone_ends_with_its_last_length_where_people_read_it(people, open_zone):
    assert "681,274 to 1,048,569 tokens," in page_text(people.auditor.get("/d/chat-large/exposure/import/"))
    page = page_text(people.viewer.get(imported(people.auditor, a_log("acme"))))
    assert "<div>681,274 to 1,048,569 tokens</div>" in page
    assert RequestLog.objects.get().zones[0]["high"] == 1_048_570


def test_lengths_can_be_given(people, pair):
    imported(people.auditor, a_log("acme", tokens=5_000), low="4,000", high="6000")
    assert RequestLog.objects.get().inside == 1


def test_without_a_zone_the_log_says_nothing(people, pair):
    address = imported(people.auditor, a_log("acme"))
    page = page_text(people.viewer.get(address))
    assert "says nothing about who was inside one" in page
    assert "1 request came while nothing was known" in page
    assert "requests of every length are counted there" in page


def test_requests_of_a_time_of_which_nothing_is_known_are_counted_apart(people, open_zone):
    """The zone has been open for five days; three more came before the first audit."""
    then = timezone.now() - timedelta(days=9)
    early = [(700_000, "acme"), (690_000, "acme"), (681_274, "other"), (5, "other"), (2_000_000, "other")]
    log = a_log("acme") + "".join(f"{then.isoformat()},{tokens},{who},e,\n" for tokens, who in early)
    address = imported(people.auditor, log)
    page = page_text(people.viewer.get(address))
    assert "1 request of 1 tenant lay inside the danger zone." in page
    assert (
        "3 more requests of these lengths (681,274 to 1,048,569 tokens) came while nothing was known (no valid pass "
        "covers that time)."
    ) in page
    assert "1 request that came then was longer than every danger zone known" in page
    assert "Requests while nothing was known" in page
    assert [(t.inside, t.unknown) for t in RequestLog.objects.get().tenants.all()] == [(1, 2), (0, 1)]
    lines = b"".join(people.viewer.get(f"{address}csv/").streaming_content).decode().splitlines()
    assert [line.rsplit(",", 1)[1] for line in lines] == ["standing", "danger zone", *["not known"] * 3]
    page = page_text(people.viewer.get(f"{address}?name=other"))
    assert "0 of its 3 requests in the window lay inside, 1 came while nothing was known." in page


def test_a_zone_that_was_found_after_the_window_tells_which_lengths_matter(people, open_zone):
    then = timezone.now() - timedelta(days=9)
    day = f"{then:%Y-%m-%d}"
    address = imported(
        people.auditor, f"{HEAD}{then.isoformat()},700000,acme,e,\n", **{"from": day, "to": day}
    )
    page = page_text(people.viewer.get(address))
    assert "No danger zone with known lengths was open in this window" in page
    assert "1 request of these lengths (681,274 to 1,048,569 tokens) came while nothing was known" in page


def test_a_request_while_a_leak_was_shown_says_so(people, open_zone):
    builders.a_state(open_zone, {"canary": "fail"})
    since(open_zone, "canary", 2)
    address = imported(people.auditor, a_log("acme"))
    page = page_text(people.viewer.get(address))
    assert "came while the deployment was shown leaking." in page
    lines = b"".join(people.viewer.get(f"{address}csv/").streaming_content).decode().splitlines()
    assert lines[1].endswith(",shown leaking")
    assert "held 1 request of lengths in question while it leaked" in page_text(
        people.viewer.get("/d/chat-large/exposure/")
    )


def test_a_log_of_an_earlier_release_says_what_was_not_counted(people, open_zone):
    address = imported(people.auditor, a_log("acme"))
    RequestLog.objects.update(leaking=None, unknown=None, longer=None)
    assert "was not counted when this log was imported" in page_text(people.viewer.get(address))


def test_unread_lines_make_counts_lower_bounds(people, open_zone):
    address = imported(people.auditor, a_log("acme") + "broken\n" + EVIL.replace("\x00", "") + "\n")
    page = page_text(people.viewer.get(address))
    assert "1 request or more of 1 tenant" in page
    assert "Line 3" in page
    assert "every count is a lower bound" in page


def test_hostile_logs_are_only_text(people, open_zone):
    address = imported(
        people.auditor,
        a_log(EVIL.replace(",", "")),
        name=EVIL.replace("\x00", "").replace("/", "")[:90] + ".csv",
    )
    page = page_text(people.viewer.get(address))
    assert "<script>alert" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("body", [b"", b"a,b\n1,2\n", b"\x1f\x8b\x08", b"[{}]", b"\x00" * 100])
def test_what_is_no_log_is_refused_in_words(people, open_zone, body):
    answer = send(people.auditor, body)
    assert answer.status_code == 422
    assert "Nothing was imported." in page_text(answer)
    assert not RequestLog.objects.exists()


def test_bad_lengths_and_no_file_are_refused_in_words(people, open_zone):
    assert send(people.auditor, a_log("acme"), low="9", high="8").status_code == 422
    assert people.auditor.post("/d/chat-large/exposure/import/", {}).status_code == 422
    assert not RequestLog.objects.exists()


def test_viewers_do_not_import(people, open_zone):
    assert people.viewer.get("/d/chat-large/exposure/import/").status_code == 403
    assert send(people.viewer, a_log("acme")).status_code == 403
    assert people.auditor.get("/d/chat-large/exposure/logs/99999999999999999999/").status_code == 404


def test_an_import_is_watched_and_cancelled(people, open_zone):
    address = send(people.auditor, a_log("acme"))["Location"]
    page = page_text(people.auditor.get(address))
    assert "Waits for a worker." in page
    assert f'hx-get="{address}progress/" hx-trigger="load delay:500ms"' in page
    assert "0 lines" not in page  # it has not been looked at
    LogImport.objects.update(requested_at=timezone.now() - timedelta(minutes=1))
    assert 'hx-trigger="every 1s"' in page_text(people.auditor.get(f"{address}progress/"))
    assert "Reload" in page  # without JavaScript
    assert "requests.csv" in page_text(people.auditor.get("/d/chat-large/exposure/import/"))
    assert people.auditor.get(f"{address}cancel/").status_code == 405
    assert people.auditor.post(f"{address}cancel/")["Location"] == address
    part = page_text(people.auditor.get(f"{address}progress/"))
    assert "Cancelled. Nothing was kept." in part
    assert "hx-get" not in part
    assert "had already ended" in page_text(people.auditor.post(f"{address}cancel/", follow=True))
    assert not RequestLog.objects.exists()


def test_a_running_import_shows_how_far_it_is_and_a_lost_one_says_so_at_the_next_look(people, open_zone):
    address = send(
        people.auditor, a_log("acme"), name=f"{EVIL.replace(chr(0), '').replace('/', '')[:90]}.csv"
    )["Location"]
    works = LogImport.objects.all()
    works.update(state="running", seen_at=timezone.now(), rows_read=4_321, bytes_read=10, problem_count=2)
    page = page_text(people.auditor.get(f"{address}progress/"))
    assert "Is being read." in page
    assert "4,321 lines" in page
    assert "2 lines could not be read" in page
    assert "<script>alert" not in page
    people.auditor.post(f"{address}cancel/")
    assert "Stops within seconds." in page_text(people.auditor.get(f"{address}progress/"))
    works.update(seen_at=timezone.now() - timedelta(minutes=2), cancel_requested_at=None)
    page = page_text(people.auditor.get(f"{address}progress/"))
    assert "Failed. The worker that read this log was lost" in page
    assert "hx-get" not in page


def test_an_import_that_ended_shows_its_lines_in_the_part_that_asks_again(people, open_zone):
    address = send(people.auditor, a_log("acme", "acme"))["Location"]
    tasks.import_log(LogImport.objects.get().pk)
    part = page_text(people.auditor.get(f"{address}progress/"))
    assert "2 lines, " in part
    assert "See what was found" in part
    assert "hx-trigger" not in part


def test_imports_are_for_auditors_of_the_team(people, open_zone):
    address = send(people.auditor, a_log("acme"))["Location"]
    for client, status in ((people.viewer, 403), (people.stranger, 404)):
        assert client.get(address).status_code == status
        assert client.get(f"{address}progress/").status_code == status
        assert client.post(f"{address}cancel/").status_code == status
    assert LogImport.objects.get().state == "queued"
    assert people.auditor.get("/d/chat-large/exposure/imports/99999999999999999999/").status_code == 404
