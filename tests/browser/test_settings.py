"""Settings in a real browser: accessible in light and dark, nothing scrolls sideways, all of it without
JavaScript. A fixture per part; each adds its addresses to `PARTS`."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from kvaudit.server.accounts.models import ApiToken, Team, User
from kvaudit.server.accounts.roles import Role
from kvaudit.server.accounts.services import grant_role
from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.fleet.models import Tenant
from kvaudit.server.fleet.services import set_tenant_key
from tests.browser.looks import axe, faults
from tests.browser.settings_rows import channel_pages, ledger_pages, pin_pages
from tests.browser.test_pages import EVIL
from tests.factories import a_deployment, a_team, a_user
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)

PARTS = ("people_pages", "record_pages")
"""Fixtures that make rows and return name -> address."""


@pytest.fixture
def people_pages() -> dict[str, str]:
    """Users in every state, teams, tokens, keys; hostile words wherever people may write."""
    now = timezone.now()
    platform, long = a_team("platform"), a_team("a-team-whose-slug-is-as-long-as-it-may-be-" + "w" * 58)
    Team.objects.filter(pk=long.pk).update(name=EVIL[:200])
    ada = a_user("ada", team=platform, role="approver")
    grant_role(user=ada, team=long, role=Role.VIEWER, actor="system:tests")
    User.objects.filter(pk=ada.pk).update(email="ada@example.org", last_login=now - timedelta(hours=3))
    gone = a_user("x" * 150, team=platform, role="operator")
    User.objects.filter(pk=gone.pk).update(is_active=False, must_change_password=True)
    a_user("nobody-yet")
    for number, name in enumerate(("nightly pipeline", EVIL[:100])):
        create_token(
            owner=ada, name=name, scopes=["gate", "read"], actor="system:tests",
            team=long if number else None, deployments=["chat-large"] if number else (),
            expires_at=now + timedelta(days=30) if number else None,
        )  # fmt: skip
    create_token(owner=ada, name="stopped", scopes=["read"], actor="system:tests")
    ApiToken.objects.filter(name="stopped").update(revoked_at=now)
    for slug, keyed in (("chat-large", 1), ("chat-mixed", 2), ("chat-small", 0)):
        pair = builders.a_pair(slug, team=platform)
        for number, name in enumerate(("audit-a", EVIL[:300])):
            tenant = Tenant.objects.create(deployment=pair, name=name)
            if number < keyed:
                set_tenant_key(tenant=tenant, key=f"sk-secret-{number}", actor=ada)
    a_deployment("bare", team=long)
    return {
        "settings": "/settings/",
        "account": "/settings/account/",
        "users": "/settings/users/",
        "no user": "/settings/users/?q=zzz",
        "user": f"/settings/users/{ada.pk}/",
        "user deactivated": f"/settings/users/{gone.pk}/",
        "user new": "/settings/users/new/",
        "teams": "/settings/teams/",
        "team": f"/settings/teams/{long.slug}/",
        "team with members": "/settings/teams/platform/",
        "tokens": "/settings/tokens/",
        "tokens all": "/settings/tokens/?state=all",
        "no token": "/settings/tokens/?q=zzz",
        "keys all": "/settings/keys/",
    }


@pytest.fixture
def record_pages() -> dict[str, str]:
    """Channels, pins and the ledger."""
    return {**channel_pages(), **pin_pages(), **ledger_pages()}


@pytest.fixture
def addresses(request: pytest.FixtureRequest) -> dict[str, str]:
    """Every address of every part."""
    found: dict[str, str] = {}
    for part in PARTS:
        found |= request.getfixturevalue(part)
    return found


def test_pages_are_accessible_keep_to_the_policy_and_fit(visit, addresses):
    assert faults(visit(), addresses, part="settings") == {}


def test_somebody_new_gets_a_role_and_logs_in_without_javascript(visit, people_pages):
    page = visit(java_script_enabled=False).go("/settings/")
    page.get_by_role("link", name="Users and roles").click()
    page.get_by_role("link", name="New user").click()
    page.get_by_label("User name", exact=True).fill("grace")
    page.get_by_label(re.compile("^Where")).select_option("platform")
    page.get_by_label("Role", exact=True).select_option("operator")
    page.get_by_role("button", name="Make the user").click()
    password = page.locator("dl.facts code").nth(1).inner_text()
    page.get_by_role("link", name="I have it: to the user").click()
    expect(page.get_by_role("button", name="Revoke operator in platform")).to_be_visible()
    hers = visit(login=False, java_script_enabled=False).go("/login/")
    hers.get_by_label("Username").fill("grace")
    hers.get_by_label("Password").fill(password)
    hers.get_by_role("button", name="Log in").click()
    expect(hers.get_by_role("heading", name="Choose a password")).to_be_visible()


def test_a_token_is_made_used_once_in_sight_and_revoked(visit, people_pages):
    visitor = visit()
    page = visitor.go("/settings/tokens/")
    page.get_by_label("Name", exact=True).fill("release pipeline")
    page.get_by_role("checkbox", name="ask the gate").check()
    page.get_by_role("button", name="Make the token").click()
    secret = page.get_by_label("Token", exact=True).inner_text()
    assert secret.startswith("kva_")
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.get_by_role("link", name="I have it: to the tokens").click()
    assert secret not in page.content()
    page.get_by_role("button", name="Revoke release pipeline").click()
    expect(page.get_by_text("The token release pipeline no longer works.")).to_be_visible()
    assert visitor.complaints == []


def test_a_manager_finds_which_deployments_nobody_owns(visit, people_pages):
    page = visit().go("/settings/")
    page.get_by_role("link", name="Teams", exact=True).click()
    row = page.get_by_role("row", name=re.compile("^a-team-whose"))
    expect(row).to_contain_text("1 without an owner")
    expect(page.get_by_role("row", name=re.compile("^platform"))).to_contain_text("ada (approver)")


def test_an_auditor_sees_why_a_canary_cannot_run(visit, people_pages):
    page = visit().go("/settings/")
    page.get_by_role("link", name="Tenants' keys").click()
    row = page.get_by_role("row", name=re.compile("^chat-large "))
    expect(row).to_contain_text(
        re.compile("second tenant’s key is missing: .*canary.* stay inconclusive", re.DOTALL)
    )
    row.get_by_role("link", name="Set keys of chat-large").click()
    expect(page.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
