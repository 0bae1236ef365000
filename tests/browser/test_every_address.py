"""Every address that shows a page: accessible in light and dark, within the policy, no wider than a telephone.

The list is that of the URL conf, so a page that is added is looked at without anybody's doing: here, unless its part
has a file that shows it with more rows (`tests.browser.looks.PARTS`).
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from kvaudit.server.accounts.models import User
from tests.browser.looks import PARTS, faults
from tests.server.web.addresses import PATTERNS
from tests.server.web.conftest import pair, people  # noqa: F401 - fixtures
from tests.server.web.test_strangers import rows_for

pytestmark = pytest.mark.django_db(transaction=True)


Pages = dict[str, tuple[str, str]]


@pytest.fixture
def pages(visit: Any, people: Any, pair: Any) -> Pages:  # noqa: F811
    """Name -> address and HTML, of each that answers GET with HTML of its own."""
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
            whole = (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode()
            if "<main" in whole:
                found[pattern.name] = (address, whole)
    assert len(found) > 50, "the addresses lead to pages"
    return found


def test_every_page(visit: Any, pages: Pages) -> None:
    elsewhere = set().union(*PARTS.values())
    assert elsewhere <= set(pages), "a part owes pages that are none"
    here = {name: address for name, (address, _) in pages.items() if name not in elsewhere}
    assert len(here) > 10
    assert faults(visit(), here) == {}


def test_every_page_is_one_without_javascript(pages: Pages) -> None:
    """What the server sends has a heading and says something; what pages do without scripts, their files try."""
    without = []
    for name, (_, html) in pages.items():
        main = re.search(r"<main\b.*?</main>", html, re.DOTALL)
        if not main or "<h1" not in main[0] or len(re.sub(r"<[^>]*>|\s", "", main[0])) < 20:
            without.append(name)
    assert not without
