"""Every address that shows a page: accessible in light and dark, within the policy, no wider than a telephone.

The list is that of the URL conf, so a page that is added is looked at without anybody's doing.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from kvaudit.server.accounts.models import User
from tests.browser.looks import faults
from tests.server.web.addresses import PATTERNS
from tests.server.web.conftest import pair, people  # noqa: F401 - fixtures
from tests.server.web.test_strangers import rows_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def addresses(visit: Any, people: Any, pair: Any) -> dict[str, str]:  # noqa: F811
    """Name -> address of each that answers GET with HTML of its own."""
    admin = User.objects.get(username="admin")  # whom `visit` logs in
    given = rows_for(admin, people, pair)
    client = Client()
    client.force_login(admin)
    found = {}
    for pattern in PATTERNS:
        address = reverse(pattern.name, kwargs=given.get(pattern.name, {}))
        answer = client.get(address)
        assert answer.status_code != 404 or pattern.name == "history-export-file", (
            f"no row was made for {address}"
        )
        if answer.status_code == 200 and answer["Content-Type"].startswith("text/html"):
            whole = b"".join(answer.streaming_content) if answer.streaming else answer.content
            if b"<main" in whole:
                found[pattern.name] = address
    assert len(found) > 50, "the addresses lead to pages"
    return found


def test_every_page(visit: Any, addresses: dict[str, str]) -> None:
    assert faults(visit(), addresses) == {}


def test_every_page_is_one_without_javascript(visit: Any, addresses: dict[str, str]) -> None:
    visitor = visit(java_script_enabled=False)
    without = []
    for name, address in addresses.items():
        page = visitor.go(address)
        if not (page.locator("h1").count() and page.locator("main").inner_text().strip()):
            without.append(name)
    assert not without
