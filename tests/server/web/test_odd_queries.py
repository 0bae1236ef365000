"""No parameter of any address breaks it: each that a page looks at is tried with what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from kvaudit.server.accounts.models import User
from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.api.urls import api
from tests.drawn import TIMES
from tests.factories import an_admin
from tests.server.web import builders
from tests.server.web.addresses import PATTERNS
from tests.server.web.test_strangers import rows_for

pytestmark = pytest.mark.django_db

ODD = (
    "0001-01-01", "9999-12-31", "0001-01-01T00:00:00-23:59", "9999-12-31T23:59:59+23:59", "0000-00-00", "2026-02-30",
    "9" * 40, "-1", "0", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "nan", "²",
    "٣", "\x00", "\ud83d", "run:\x00", "0001-W01", "9999-W53", "2026-W99", "0-0", "1.9e3", "~", "a" * 3_000, "%", "' OR 1=1--",
    "00000000-0000-0000-0000-000000000000", "2026-12-01T00:00:00", "9999-12-31.1", "253402300800", "-62135596801.5",
)  # fmt: skip


@pytest.fixture
def boss(people, pair) -> tuple[Client, dict[str, dict[str, Any]], User]:
    builders.a_state(
        pair, {**dict.fromkeys(builders.REQUIRED, "pass"), "pool": "fail"}, measures=builders.SHORT_POOL
    )
    admin = an_admin("boss")
    client = Client()
    client.force_login(admin)
    client.raise_request_exception = False
    return client, rows_for(admin, people, pair), admin


def test_no_page_breaks_on_what_its_address_says(boss, monkeypatch):
    client, named, _ = boss
    asked: set[str] = set()
    get = QueryDict.get

    def noting(self: QueryDict, key: str, default: Any = None) -> Any:
        asked.add(key)
        return get(self, key, default)

    monkeypatch.setattr(QueryDict, "get", noting)
    wrong, tried = {}, 0
    for pattern in PATTERNS:
        if pattern.pattern.converters and pattern.name not in named:
            continue
        address = reverse(pattern.name, kwargs=named.get(pattern.name))
        asked.clear()
        if (status := client.get(address).status_code) != 200:
            assert status < 500, address
            continue
        for given in _questions(sorted(asked - {"csrfmiddlewaretoken"})):
            answer = client.get(address, given)
            if answer.status_code >= 500:
                wrong[address, str(given)[:60]] = answer.status_code
            tried += 1
    assert wrong == {}
    assert tried > 500


def _questions(names: list[str]) -> Iterator[dict[str, str]]:
    """All parameters at once with each odd value; then each alone, since one that is refused may hide the others.
    Alone they share the values out among them; ``make soak`` tries all."""
    values = [value.encode("utf-8", "replace").decode() for value in ODD]
    if names:
        yield from (dict.fromkeys(names, value) for value in values)
    share = max(1, 5 // TIMES)
    for number, name in enumerate(names):
        yield from ({name: value} for value in values[number % share :: share])


def test_no_question_breaks_the_api_and_no_answer_is_kept(boss):
    client, _, admin = boss
    _, secret = create_token(owner=admin, name="x", scopes=["read", "gate"], actor=admin)
    wrong, tried = {}, 0
    for path, operations in api.get_openapi_schema()["paths"].items():
        if "get" not in operations:
            continue
        names = [
            parameter["name"]
            for parameter in operations["get"].get("parameters", [])
            if parameter["in"] == "query"
        ]
        for name in [*names, ""]:
            for value in ODD:
                answer = client.get(
                    path.replace("{slug}", "chat-large"),
                    {name: value.encode("utf-8", "replace").decode()} if name else {},
                    headers={"Authorization": f"Bearer {secret}"},
                )
                tried += 1
                if answer.status_code not in (200, 422) or answer["Cache-Control"] != "no-store":
                    wrong[path, name, value[:30]] = (answer.status_code, answer.get("Cache-Control"))
                elif answer.status_code == 422:
                    assert answer.json()["error"].endswith(".")
    assert wrong == {}
    assert tried > 100
    refused = client.get("/api/v1/deployments")
    assert (refused.status_code, refused["Cache-Control"]) == (401, "no-store")


# In one test each: the rows of a whole product are made once, which takes longer than all the requests.
NONE_OF_OURS = ("0", "9223372036854775808", "9" * 60)
READ = (
    "/runs/{}/", "/incidents/{}/", "/settings/users/{}/", "/waivers/{}/", "/attestations/{}/",
    "/settings/channels/{}/", "/history/exports/{}/", "/runs/{}/progress/", "/incidents/{}/document/",
    "/d/chat-large/exposure/imports/{}/", "/d/chat-large/exposure/logs/{}/csv/",
)  # fmt: skip
POSTED = (
    "/settings/tokens/{}/revoke/",
    "/incidents/{}/act/",
    "/runs/{}/cancel/",
    "/settings/channels/{}/test/",
)


def test_a_number_that_is_none_of_ours_is_a_404(boss):
    client, _, _ = boss
    answers = {
        address: client.get(address).status_code
        for address in (path.format(number) for path in READ for number in NONE_OF_OURS)
    }
    assert {address: status for address, status in answers.items() if status not in (302, 404)} == {}
    posted = {path: client.post(path.format("9" * 60), {"act": "close"}).status_code for path in POSTED}
    assert set(posted.values()) == {404}, posted
