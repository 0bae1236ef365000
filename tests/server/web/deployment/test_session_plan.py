"""The page on which a second person reads and approves what the check session sends."""

from __future__ import annotations

import re

from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.server.fleet import session_plans
from kvaudit.server.fleet.models import Deployment, SessionApproval
from tests.factories import a_user
from tests.server.web.pages import page_text
from tests.session_server import FLEET_FILE

PATH = "/d/chat-large/session/"


def described(pair, author=None, url="http://10.0.0.2:80"):
    parsed = parse_fleet(FLEET_FILE.format(url=url))
    pair.session = session_plans.as_json(parsed.deployments[0].session)
    pair.session_author, pair.session_set_by = author, author.username if author else ""
    pair.save()


def digest(client):
    return re.search(r'name="digest" value="([0-9a-f]{64})"', page_text(client.get(PATH)))[1]


def test_every_request_is_shown_and_an_approver_approves_it(people, pair, client):
    described(pair, people.operating_user)
    assert people.stranger.get(PATH).status_code == 404
    page = page_text(people.viewer.get(PATH))
    assert "http://10.0.0.2:80/sessions" in page
    assert "{{size}}" in page
    assert "PUT" in page
    assert "not approved" in page
    assert '<form class="stack" method="post">' not in page
    client.force_login(a_user(team=people.team, role="approver"))
    answer = client.post(PATH, {"act": "approve", "digest": digest(client), "reason": "read"}, follow=True)
    assert "Approved by" in page_text(answer)
    assert SessionApproval.objects.current().get().deployment == pair
    assert "session cannot run yet" not in page_text(people.viewer.get("/d/chat-large/checks/"))
    people.operator.post(PATH, {"act": "withdraw"})
    assert not SessionApproval.objects.current().exists()
    assert "session cannot run yet" in page_text(people.viewer.get("/d/chat-large/checks/"))


def test_who_brought_it_in_sees_why_they_cannot(people, pair, client):
    author = a_user(team=people.team, role="approver")
    described(pair, author)
    client.force_login(author)
    page = page_text(client.get(PATH))
    assert "takes a second person" in page
    assert 'name="digest"' not in page
    answer = client.post(PATH, {"act": "approve", "digest": "0" * 64})
    assert answer.status_code == 403
    assert not SessionApproval.objects.exists()


def test_others_are_told_that_they_may_not(people, pair):
    described(pair)
    assert people.stranger.post(PATH, {"act": "approve"}).status_code == 404
    assert people.operator.post(PATH, {"act": "approve"}).status_code == 403
    assert people.viewer.post(PATH, {"act": "withdraw"}).status_code == 403
    assert people.operator.post(PATH, {"act": "nonsense"}).status_code == 400


def test_what_changed_meanwhile_is_not_approved(people, pair, client):
    described(pair)
    client.force_login(a_user(team=people.team, role="approver"))
    seen = digest(client)
    described(Deployment.objects.get(pk=pair.pk), url="http://10.0.0.9:80")
    answer = client.post(PATH, {"act": "approve", "digest": seen}, follow=True)
    assert "changed since you read them" in page_text(answer)
    assert not SessionApproval.objects.exists()


def test_without_a_session_api_the_page_says_so(people, pair):
    assert "None is described" in page_text(people.viewer.get(PATH))


def test_acting_characters_are_spelled_out(people, pair):
    described(pair)
    pair.session["steps"][0][1][0][2] = '{"a": "\u202egnp.exe"}'
    pair.save()
    assert "U+202E" in page_text(people.viewer.get(PATH))
