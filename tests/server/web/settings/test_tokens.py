"""API tokens: shown once, narrowed, revoked; the lines that are shown with one work."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from kvaudit.auditor.commands import gate
from kvaudit.server.accounts.models import ApiToken, User
from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.ledger.models import Entry
from tests.factories import a_deployment, a_team, a_user, an_admin
from tests.server.web.pages import page_text

TOKENS = "/settings/tokens/"
FORM = {"name": "pipeline", "scopes": ["gate", "read"], "lives": "90"}


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def made(client: Client, **form: object) -> tuple[str, list[str]]:
    """(the page, its shell lines)."""
    page = page_text(client.post(TOKENS, {**FORM, **form}))
    return page, [unescape(each) for each in re.findall(r'aria-labelledby="line-\d+">([^<]+)<', page)]


def test_a_token_is_shown_once_with_lines_that_work(people, pair, settings):
    settings.BASE_URL = "http://testserver"
    page, lines = made(people.operator)
    secret = re.search(r">(kva_[^<]+)</pre>", page)[1]
    assert lines[0] == f"export KVAUDIT_TOKEN={secret}"
    assert all(secret not in line for line in lines[1:]), "these may go into a pipeline's file"
    token = ApiToken.objects.get()
    assert (token.owner, token.scopes) == (people.operating_user, ["gate", "read"])
    assert timedelta(days=89) < token.expires_at - timezone.now() < timedelta(days=91)
    listed = page_text(people.operator.get(TOKENS))
    assert secret not in listed
    assert token.prefix in listed
    assert secret not in repr(list(Entry.objects.values_list()))
    for line in lines[1:3]:
        words = shlex.split(line.replace("$KVAUDIT_TOKEN", secret))
        address = next(word for word in words if word.startswith("http://")).removeprefix("http://testserver")
        header = words[-1].removeprefix("Authorization: ")
        if "-d" in words:
            body = words[words.index("-d") + 1]
            answer = Client().post(address, body, "application/json", HTTP_AUTHORIZATION=header)
        else:
            answer = Client().get(address, HTTP_AUTHORIZATION=header)
        assert answer.status_code == 200, line
    given = gate.parser().parse_args(shlex.split(lines[3])[2:])
    assert (given.deployment, given.token_env) == ("chat-large", "KVAUDIT_TOKEN")
    assert len(given.node) == 2


def test_only_what_the_token_may_is_shown(people, pair):
    assert len(made(people.viewer, scopes=["read"])[1]) == 2
    assert len(made(people.viewer, scopes=["gate"])[1]) == 3
    assert "--deployment SLUG" in made(as_(a_user()), scopes=["gate"])[1][2], "nothing to see yet"


def test_a_token_is_narrowed_to_what_its_owner_sees(people, pair):
    other = a_deployment("theirs", team=a_team("others"))
    made(people.operator, team=people.team.slug, deployments="chat-large", lives="never")
    token = ApiToken.objects.get()
    assert (token.team, token.deployments, token.expires_at) == (people.team, ["chat-large"], None)
    for form, sentence in (
        ({"deployments": other.slug}, "that you may see called theirs"),
        ({"team": "others"}, "not one of the available choices"),
        ({"scopes": []}, "required"),
        ({"scopes": ["write"]}, "not one of the available choices"),
        ({"name": "x" * 101}, "at most 100"),
        ({"name": "x\x00"}, "Null characters"),
        ({"lives": "99999"}, "not one of the available choices"),
    ):
        assert sentence in made(people.operator, **form)[0]
    wide = a_user(role="operator")
    page, _ = made(as_(wide), team=people.team.slug, deployments="theirs")
    assert f"Not of team {people.team.slug}: theirs." in page
    assert ApiToken.objects.count() == 1


def test_one_sees_ones_own_and_an_administrator_all(people):
    mine, _ = create_token(owner=people.operating_user, name="mine", scopes=["read"], actor="system:tests")
    assert b"mine" in people.operator.get(TOKENS).content
    for client in (people.viewer, people.stranger):
        assert b"mine" not in client.get(TOKENS).content
        assert client.post(f"{TOKENS}{mine.pk}/revoke/").status_code == 404
    chief = as_(an_admin())
    page = page_text(chief.get(f"{TOKENS}?q={people.operating_user.username}"))
    assert "mine" in page
    assert f'data-label="Owner"><bdi>{people.operating_user.username}</bdi>' in page
    answer = chief.post(f"{TOKENS}{mine.pk}/revoke/", follow=True)
    assert b"no longer works" in answer.content
    mine.refresh_from_db()
    assert mine.revoked_at is not None
    assert people.operator.get(f"{TOKENS}{mine.pk}/revoke/").status_code == 405


def test_ended_tokens_say_why(people):
    now = timezone.now()
    owner = people.operating_user
    for name, ends in (("still", None), ("over", now - timedelta(days=1)), ("stopped", None)):
        create_token(owner=owner, name=name, scopes=["read"], expires_at=ends, actor="system:tests")
    ApiToken.objects.filter(name="stopped").update(revoked_at=now)
    gone = a_user("gone")
    create_token(owner=gone, name="orphan", scopes=["read"], actor="system:tests")
    User.objects.filter(pk=gone.pk).update(is_active=False)
    chief = as_(an_admin())
    page = page_text(chief.get(TOKENS))
    assert "still" in page
    assert "over" not in re.findall(r"<bdi>(\w+)</bdi>", page)
    page = page_text(chief.get(f"{TOKENS}?state=ended"))
    for name, why in (("over", "expired"), ("stopped", "revoked"), ("orphan", "owner deactivated")):
        assert f'<bdi>{name}</bdi> <span class="tag">{why}</span>' in page
    assert "<bdi>still</bdi>" not in page
    assert "<bdi>still</bdi>" in page_text(chief.get(f"{TOKENS}?state=all"))
    for odd in ("after=zzz", "before=99999999999999999999", "state=green", "q=%00", "after=-1"):
        assert chief.get(f"{TOKENS}?{odd}").status_code == 200


def test_hostile_names_stay_words(people):
    page, _ = made(people.operator, name="<script>alert(1)</script>\u202e=1+1")
    for shown in (page, page_text(people.operator.get(TOKENS))):
        assert "<script>alert" not in shown
        assert "U+202E" in shown


@pytest.mark.parametrize("count", [1, 9])
def test_the_list_takes_as_many_queries_for_any_number(db, count, django_assert_num_queries):
    for _ in range(count):
        create_token(owner=a_user(), name="t", scopes=["read"], actor="system:tests", team=a_team())
    client = as_(an_admin())
    with django_assert_num_queries(6):
        client.get(TOKENS)
