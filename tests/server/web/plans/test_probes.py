"""Active checks: who may pause, resume and consent, and that it is recorded."""

from __future__ import annotations

from kvaudit.server.accounts.models import Membership
from kvaudit.server.audits.models import Run
from kvaudit.server.fleet.models import Consent, Pause, Tenant
from kvaudit.server.fleet.services import set_tenant_key, suspend_probes
from tests.factories import a_user
from tests.server.web.pages import page_text

PATH = "/d/chat-large/probes/"


def test_a_pause_of_one_deployment(people, pair):
    assert people.stranger.post(PATH, {"act": "pause"}).status_code == 404
    assert people.viewer.post(PATH, {"act": "pause"}).status_code == 403
    assert not Pause.objects.exists()
    answer = people.operator.post(PATH, {"act": "pause", "reason": "load test"}, follow=True)
    assert answer.redirect_chain == [("/d/chat-large/settings/", 302)]
    for page in (page_text(answer), page_text(people.viewer.get("/d/chat-large/"))):
        assert "load test" in page
        assert "paused</span>" in page
    people.operator.post(PATH, {"act": "resume"})
    assert not Pause.objects.current().exists()
    assert Pause.objects.exists(), "what was stays on record"


def test_consent_takes_an_approver_and_can_be_withdrawn_by_an_operator(people, pair, client):
    assert people.operator.post(PATH, {"act": "consent"}).status_code == 403
    approver = a_user(team=people.team, role="approver")
    client.force_login(approver)
    client.post(PATH, {"act": "consent", "reason": "shadow pair"})
    assert Consent.objects.current().get(deployment=pair).reason == "shadow pair"
    people.operator.post(PATH, {"act": "withdraw"})
    assert not Consent.objects.current().exists()


def test_nonsense_is_refused(people, pair):
    assert people.operator.post(PATH, {"act": "explode"}).status_code == 400
    assert people.operator.post(PATH).status_code == 400


def test_the_whole_fleet_takes_a_fleet_wide_operator(people, pair, client):
    assert people.operator.post("/probes/", {"act": "pause"}).status_code == 403
    client.force_login(a_user(role="operator"))
    client.post("/probes/", {"act": "pause", "reason": "incident"})
    assert Pause.objects.current().get().deployment is None
    assert "for the whole fleet" in page_text(people.viewer.get("/d/chat-large/settings/"))
    client.post("/probes/", {"act": "resume"})
    assert not Pause.objects.current().exists()


def test_prompts_are_offered_only_where_they_can_be_sent(people, pair):
    assert ">Run active checks<" not in page_text(people.operator.get("/d/chat-large/"))
    answer = people.operator.post("/d/chat-large/audit/", {"kind": "active"}, follow=True)
    assert "No check that sends prompts can run here yet" in page_text(answer)
    assert not Run.objects.exists()
    for name in ("audit-a", "audit-b"):
        tenant = Tenant.objects.create(deployment=pair, name=name)
        set_tenant_key(tenant=tenant, key=f"sk-{name}", actor="system:tests")
    answer = people.operator.post("/d/chat-large/audit/", {"kind": "active"}, follow=True)
    left_out = "3 left out: no consent (give it in the deployment’s Settings): rejection, coherence, canary."
    assert page_text(answer).count(left_out) == 2  # as a message, and where it goes on
    part = people.operator.post("/d/chat-large/audit/", {"kind": "active"}, headers={"HX-Request": "true"})
    assert left_out in page_text(part)
    Membership.objects.filter(user=people.operating_user).update(
        role=a_user(team=people.team, role="approver").memberships.get().role
    )
    people.operator.post(PATH, {"act": "consent"})
    assert ">Run active checks<" in page_text(people.operator.get("/d/chat-large/"))
    people.operator.post("/d/chat-large/audit/", {"kind": "active"})
    first, run = Run.objects.order_by("pk")
    assert run.kind == "active"
    assert "canary" in run.checks
    assert "left out" not in page_text(people.operator.get(f"/runs/{run.pk}/"))
    assert left_out in page_text(people.operator.get(f"/runs/{first.pk}/")), "consent came later"


def test_a_suspension_says_why_and_ends_with_a_reason(people, pair):
    suspend_probes(deployment=pair, reason="After a prompt of 2,047 tokens nothing answered any more.")
    page = page_text(people.operator.get("/d/chat-large/"))
    assert "active checks suspended" in page
    assert "2,047 tokens" in page
    assert "an operator of its team resumes them" in page_text(people.operator.get("/d/chat-large/settings/"))
    assert people.viewer.post(PATH, {"act": "resume", "reason": "please"}).status_code == 403
    answer = people.operator.post(PATH, {"act": "resume"})
    refused = page_text(answer)
    assert answer.status_code == 422
    assert "give the reason why prompts may be sent again" in refused
    assert '<a href="#id_reason">Reason</a>' in refused
    assert "optional" not in refused
    assert Pause.objects.current().exists()
    people.operator.post(PATH, {"act": "resume", "reason": "pool enlarged"})
    assert not Pause.objects.current().exists()
    events = page_text(people.operator.get("/d/chat-large/events/"))
    assert "pool enlarged" in events
