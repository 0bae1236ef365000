"""Plans: made, changed as a new version, switched, retired; and only by who operates all they reach."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from kvaudit.server.accounts.models import Membership
from kvaudit.server.audits.models import Plan, Run
from kvaudit.server.audits.schedule import dispatch
from tests.factories import a_deployment, a_team
from tests.server.web import builders
from tests.server.web.pages import page_text

GOOD = {
    "name": "Nightly", "checks": ["pool", "version"], "deployments": "chat-large", "interval": "", "cron": "0 2 * * *",
    "zone": "Europe/Berlin", "jitter": "10 min", "windows": "mon-fri 01:00-06:00 Europe/Berlin",
    "budget_seconds": "2 min", "budget_tokens": "", "team": "", "engine": "", "enabled": "on",
}  # fmt: skip


def test_a_plan_is_made_and_shown(people, pair):
    answer = people.operator.post("/plans/new/", GOOD, follow=True)
    plan = Plan.objects.get()
    assert (plan.cron, plan.zone, plan.interval, plan.jitter, plan.budget_seconds) == (
        "0 2 * * *", "Europe/Berlin", None, 600, 120,
    )  # fmt: skip
    assert plan.windows == [
        {"days": ["mon", "tue", "wed", "thu", "fri"], "from": "01:00", "to": "06:00", "zone": "Europe/Berlin"}
    ]
    assert list(plan.deployments.all()) == [pair]
    assert plan.created_by == people.operating_user
    page = page_text(answer)
    assert "cron 0 2 * * * (Europe/Berlin)" in page
    assert page.count("02:00:00 CE") + page.count("01:00:00 UTC") + page.count("00:00:00 UTC") >= 5, (
        "next slots"
    )
    assert "Nightly" in page_text(people.viewer.get("/plans/"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"interval": "1 h"}, "either every so often or by cron: empty one of the two"),
        ({"cron": ""}, "When? Say how often"),
        ({"checks": ["pool", "canary"]}, "pick of one kind"),
        ({"cron": "every night"}, "is not a cron expression"),
        ({"cron": "61 * * * *"}, "is not a cron expression"),
        ({"cron": "", "interval": "soon"}, "Write a number and a unit"),
        ({"zone": "Mars/Base"}, "not one of the available choices"),
        ({"checks": []}, "This field is required"),
        ({"checks": ["telepathy"]}, "not one of the available choices"),
        ({"deployments": "chat-large no-such"}, "There is no deployment that you may plan called no-such."),
        ({"deployments": ""}, "give at least one"),
        ({"windows": "at night"}, "Line 1 is not a window"),
        ({"name": "x" * 121}, "at most 120 characters"),
        ({"budget_tokens": "-1"}, "greater than or equal to 1"),
        ({"where": "drained"}, "What only reads is the same with and without traffic"),
        ({"where": "mars"}, "not one of the available choices"),
        ({"name": "nul\x00"}, "Null characters are not allowed"),
    ],
)
def test_a_mistake_is_named_and_nothing_written_is_lost(people, pair, change, sentence):
    answer = people.operator.post("/plans/new/", {**GOOD, **change})
    page = page_text(answer).replace("&#x27;", "'")
    assert sentence in page
    assert not Plan.objects.exists()
    if "windows" not in change:
        assert "mon-fri 01:00-06:00 Europe/Berlin" in page


def test_all_mistakes_are_named_at_once_at_their_fields(people, pair):
    answer = people.operator.post(
        "/plans/new/", {**GOOD, "name": "", "checks": ["pool", "canary"], "deployments": "", "cron": ""}
    )
    form = answer.context["form"]
    assert set(form.errors) == {"name", "checks", "deployments", "interval"}
    assert "seconds" not in str(form.errors)


def test_the_form_says_what_reads_and_what_sends_and_offers_what_one_may_plan(people, pair):
    a_deployment("foreign", team=a_team())
    page = page_text(people.operator.get("/plans/new/?deployment=chat-large"))
    reads, sends = page.index("Passive: only reads"), page.index("Active: sends prompts as tenants")
    assert reads < page.index('value="version"') < sends < page.index('value="canary"')
    assert '<option value="chat-large" selected>chat-large</option>' in page
    assert "foreign" not in page
    assert 'value="1 h"' not in page


def test_more_deployments_than_a_list_holds_are_typed(people, pair, monkeypatch):
    monkeypatch.setattr("kvaudit.server.web.kit.fields.MOST_OFFERED", 0)
    page = page_text(people.operator.get("/plans/new/?deployment=chat-large"))
    assert '<textarea name="deployments"' in page
    assert people.operator.post("/plans/new/", {**GOOD, "deployments": "chat-large, "}).status_code == 302


def test_the_list_names_three_deployments_and_none_that_is_not_seen(people, pair):
    others = [a_deployment(slug, team=people.team) for slug in ("code-7b", "math-1b", "zeta")]
    builders.a_plan(pair, *others, a_deployment("elsewhere", team=a_team()))
    page = page_text(people.viewer.get("/plans/"))
    assert "chat-large, code-7b, math-1b and 2 more deployments" in page
    assert "elsewhere" not in page


def test_a_change_makes_a_version(people, pair):
    people.operator.post("/plans/new/", GOOD)
    plan = Plan.objects.get()
    form = page_text(people.operator.get(f"/plans/{plan.series}/change/"))
    assert 'value="0 2 * * *"' in form
    assert 'value="10 min"' in form
    people.operator.post(f"/plans/{plan.series}/change/", {**GOOD, "name": "Later", "version": plan.pk})
    old, new = Plan.objects.order_by("valid_from")
    assert (old.name, old.valid_to is None) == ("Nightly", False)
    assert (new.name, new.series, new.valid_to) == ("Later", old.series, None)


def test_two_people_do_not_overwrite_each_other_unseen(people, pair):
    people.operator.post("/plans/new/", GOOD)
    plan = Plan.objects.get()
    people.operator.post(f"/plans/{plan.series}/change/", {**GOOD, "name": "First", "version": plan.pk})
    answer = people.operator.post(
        f"/plans/{plan.series}/change/", {**GOOD, "name": "Second", "version": plan.pk}
    )
    page = page_text(answer)
    assert "Somebody changed this plan meanwhile" in page
    assert 'value="Second"' in page
    assert Plan.objects.current().get().name == "First"


def test_off_on_and_retired(people, pair):
    people.operator.post("/plans/new/", GOOD)
    series = Plan.objects.get().series
    people.operator.post(f"/plans/{series}/switch/", {"enabled": "no"})
    assert not Plan.objects.current().get().enabled
    people.operator.post(f"/plans/{series}/switch/", {"enabled": "yes"})
    assert Plan.objects.current().get().enabled
    people.operator.post(f"/plans/{series}/retire/")
    assert not Plan.objects.current().exists()
    assert people.operator.get(f"/plans/{series}/").status_code == 200, "history stays readable"
    assert people.operator.post(f"/plans/{series}/switch/", {"enabled": "yes"}).status_code == 403


def test_who_may_see_and_change(people, pair):
    series = builders.a_plan(pair).series
    writes = (f"/plans/{series}/change/", f"/plans/{series}/switch/", f"/plans/{series}/retire/")
    assert people.viewer.get(f"/plans/{series}/").status_code == 200
    assert people.stranger.get(f"/plans/{series}/").status_code == 404
    for path in writes:
        assert people.viewer.post(path).status_code == 403
        assert people.stranger.post(path).status_code == 404
    assert people.viewer.get("/plans/new/").status_code == 403
    assert Plan.objects.current().get().series == series


def test_a_plan_that_reaches_other_teams_is_not_changed_from_one(people, pair):
    elsewhere = a_deployment("elsewhere", team=a_team())
    series = builders.a_plan(pair, elsewhere).series
    answer = people.operator.post(f"/plans/{series}/retire/")
    assert answer.status_code == 403
    assert "teams in which you are no operator" in page_text(answer).replace("&#x27;", "'")
    page = page_text(people.operator.get(f"/plans/{series}/"))
    assert "elsewhere" not in page, "names of other teams' deployments stay theirs"
    assert "And 1 of other teams." in page


def test_plans_are_made_only_for_deployments_one_operates(people, pair):
    elsewhere = a_deployment("elsewhere", team=a_team())
    Membership.objects.create(
        user=people.operating_user, team=elsewhere.team, role=people.operating_user.memberships.get().role
    )
    for deployment, allowed in ((elsewhere, True), (a_deployment("foreign"), False)):
        people.operator.post("/plans/new/", {**GOOD, "deployments": deployment.slug})
        assert Plan.objects.filter(deployments=deployment).exists() is allowed


def test_an_engine_everywhere_takes_a_fleet_wide_operator(people, pair):
    answer = people.operator.post("/plans/new/", {**GOOD, "deployments": "", "engine": "sglang"})
    assert "takes a fleet-wide operator" in page_text(answer)
    answer = people.operator.post(
        "/plans/new/", {**GOOD, "deployments": "", "engine": "sglang", "team": people.team.slug}
    )
    assert answer.status_code == 302
    assert Plan.objects.get().team == people.team


def priced(client, address, said):
    """Send it, read the price, send it again; returns the page with the price."""
    page = page_text(client.post(address, said))
    (key,) = re.findall('name="priced" value="([0-9a-f]{64})"', page)
    assert client.post(address, {**said, "priced": key}).status_code == 302
    return page


def test_what_sends_prompts_is_priced_before_it_is_saved(people, pair):
    active = {**GOOD, "checks": ["canary", "rejection"], "budget_tokens": "5000000"}
    page = page_text(people.operator.post("/plans/new/", active))
    assert not Plan.objects.exists()
    assert "Nothing is saved yet." in page
    assert "not measured yet" in page
    assert (
        page_text(people.operator.post("/plans/new/", {**active, "priced": "0" * 64})).count("at this price")
        == 1
    )
    builders.a_run(pair, {"canary": "pass"}, tokens_spent=600_000)
    Run.objects.update(kind="active", finished_at=F("started_at") + timedelta(minutes=10))
    page = priced(people.operator, "/plans/new/", active)
    tokens = int(re.search(r"About ([0-9,]+) prompt tokens a run", page)[1].replace(",", ""))
    assert 0 < tokens <= 10_000_000
    assert f"about {round(tokens / 60_000):,} min at the speed of its last audits" in page
    plan = Plan.objects.get()
    changed = {**active, "budget_tokens": "", "version": plan.pk}
    assert "What a run of it costs" in priced(people.operator, f"/plans/{plan.series}/change/", changed)
    assert Plan.objects.current().get().budget_tokens is None


def test_a_plan_for_replicas_without_traffic_keeps_saying_so(people, pair):
    active = {**GOOD, "checks": ["canary"], "where": "newcomer"}
    priced(people.operator, "/plans/new/", active)
    plan = Plan.objects.get()
    assert plan.where == "newcomer"
    page = page_text(people.operator.get(f"/plans/{plan.series}/change/"))
    assert '<option value="newcomer" selected>' in page
    assert "Newcomers" in page_text(people.viewer.get(f"/plans/{plan.series}/"))
    (run,) = dispatch._runs(plan, timezone.now(), timezone.now() + timedelta(days=1))
    assert run.where == "newcomer"
