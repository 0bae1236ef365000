"""Why a small pool leaks: in a sentence with this deployment's numbers, and only where it applies."""

from __future__ import annotations

import pytest

from kvaudit.server.audits.models import CheckState, Result
from kvaudit.server.web.kit.advisory_links import linked
from kvaudit.server.web.kit.parts.leak_explanation import mechanism_of
from kvaudit.server.web.kit.untrusted import block, inline
from tests.server.incidents.builders import a_result, a_target, an_incident
from tests.server.web import builders
from tests.server.web.pages import page_text

PASS = dict.fromkeys(builders.REQUIRED, "pass")
POOL = {"danger_zone": [5_322, 8_186], "nodes": [{"role": "prefill"}, {"role": "decode"}]}


def said(check, measures, *, verdict="fail", severity="", run=7):
    return Result(check_id=check, measures=measures, verdict=verdict, severity=severity, run_id=run)


def of_build(outcome):
    return {"builds": [{"advisories": [{"id": "KVA-001", "outcome": outcome}] if outcome else []}]}


@pytest.mark.parametrize(
    ("version", "build"),
    [
        (of_build("applies"), "this build still runs the refused prompt (KVA-001): one page arrives"),
        (
            of_build("undecided"),
            "this build may still run the refused prompt (KVA-001, which could not be ruled out)",
        ),
        (of_build(""), "a build with the bug of KVA-001, which is not known of this one, would still run"),
        ({"builds": "odd"}, "a build without the fix of KVA-001 still runs the refused prompt"),
        (None, "a build without the fix of KVA-001 still runs the refused prompt"),
    ],
)
def test_the_sentence_has_the_numbers_and_says_of_the_build_what_is_known(version, build):
    found = mechanism_of([said("pool", POOL), *([said("version", version)] if version is not None else [])])
    assert found is not None
    assert found.sentence.startswith(
        "Prefill refuses prompts from 5,322 tokens on, the door lets in up to 8,185. In between, "
    )
    assert build in found.sentence
    assert found.shown == []


@pytest.mark.parametrize(
    "pool",
    [
        {**POOL, "danger_zone": None},
        {**POOL, "danger_zone": [8_186, 5_322]},
        {**POOL, "danger_zone": ["many", 8_186]},
        {**POOL, "nodes": [{"role": "unified"}]},
        {**POOL, "nodes": None},
    ],
)
def test_without_a_danger_zone_of_a_prefill_side_nothing_is_said(pool):
    assert mechanism_of([said("pool", pool)]) is None
    assert mechanism_of([said("canary", {}, severity="critical")]) is None


def test_only_a_critical_fail_has_shown_it():
    found = mechanism_of(
        [
            said("pool", POOL),
            said("rejection", {}, severity="critical", run=8),
            said("canary", {}, severity="high", run=9),
            said("coherence", {}, severity="critical", run=9),
        ]
    )
    assert found is not None
    assert [(each.check, each.run) for each in found.shown] == [("rejection", 8)]


def test_an_unsafe_deployment_says_why_on_its_first_page(people, pair):
    run = builders.a_state(pair, {**PASS, "pool": "fail", "canary": "fail"}, measures=builders.SHORT_POOL)
    headline = page_text(people.viewer.get("/d/chat-large/")).partition('aria-labelledby="why"')[2]
    assert "Prefill refuses prompts from 681,274 tokens on, the door lets in up to 1,048,569." in headline
    assert '<a href="/library/#KVA-001">KVA-001</a>' in headline
    assert f'Shown: <a href="/runs/{run.pk}/#check-canary">canary, run {run.pk}</a>.' in headline
    CheckState.objects.filter(check_id="canary").update(
        expired_by="capacity change", expires_at=run.created_at
    )
    assert "Shown:" not in page_text(people.viewer.get("/d/chat-large/"))


def test_a_deployment_that_passes_has_nothing_to_explain(people, pair):
    builders.a_state(pair, PASS, measures=builders.LARGE_POOL)
    assert "Prefill refuses prompts" not in page_text(people.viewer.get("/d/chat-large/"))


def test_a_run_explains_its_fail_with_what_was_known_then(people, pair):
    passed = builders.a_run(pair, {"rejection": "fail"})
    builders.a_run(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    later = builders.a_run(pair, {"rejection": "fail", "canary": "fail"})
    assert "Prefill refuses" not in page_text(people.viewer.get(f"/runs/{passed.pk}/"))
    page = page_text(people.viewer.get(f"/runs/{later.pk}/"))
    assert page.count("Prefill refuses prompts from 681,274 tokens on") == 1, "told once a page"
    assert f"/runs/{later.pk}/#check-rejection" in page


def test_a_leak_leads_to_the_published_incident_of_its_mechanism(people):
    target = a_target("chat-xl", team=people.team)
    a_result(target, "pool", "fail", measures=builders.SHORT_POOL)
    page = page_text(people.viewer.get(f"/incidents/{an_incident(target).pk}/"))
    known = page.partition("What is known")[2].partition("</section>")[0]
    assert "Prefill refuses prompts from 681,274 tokens on" in known
    assert 'published: <a href="/library/workers-ai-glm-5-3-2026/">' in known
    assert people.viewer.get("/library/workers-ai-glm-5-3-2026/").status_code == 200
    other = page_text(
        people.viewer.get(f"/incidents/{an_incident(a_target('chat-s', team=people.team)).pk}/")
    )
    assert "The same mechanism, published" not in other


def test_advisories_lead_to_their_line_of_the_library(people):
    assert 'id="KVA-001"' in page_text(people.viewer.get("/library/"))
    shown = linked(inline("affected by KVA-001 and KVA-0042 <script>KVA-004</script>"))
    assert shown == (
        '<bdi>affected by <a href="/library/#KVA-001">KVA-001</a> and KVA-0042 '
        '&lt;script&gt;<a href="/library/#KVA-004">KVA-004</a>&lt;/script&gt;</bdi>'
    )
    assert linked("<b>") == "&lt;b&gt;"
    assert linked(block("KVA-001 " * 60)).partition("</summary>")[0].count("<a ") == 0, (
        "a summary is a button"
    )
