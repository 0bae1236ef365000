"""Every address takes as many queries for a large fleet as for a small one. A page that asks once for each row is
quick in every test and slow in every fleet; an address that is added is asked here without anybody's doing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.audits.models import Overdue
from kvaudit.server.checklists.models import OwnItem
from kvaudit.server.fleet.models import Pause
from kvaudit.server.inquiries.models import LogImport, RequestHit, RequestLog, SavedView, TenantCount
from tests.factories import a_team, a_user
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.incidents.builders import a_leak, an_incident
from tests.server.web import builders
from tests.server.web.addresses import PATTERNS
from tests.server.web.test_strangers import a_test_message, rows_for

API = ("deployments", "deployments/chat-large", "compliance", "deployments/chat-large/compliance")
STATES = ("pass", "fail", "inconclusive", "error")


def grow(team: Any, pair: Any, first: int, last: int) -> None:
    """Deployments number ``first`` to ``last`` with all that may belong to one, and as much again for ``pair``."""
    now = timezone.now()
    for number in range(first, last):
        mine = builders.a_pair(f"chat-{number:02d}", team=team)
        builders.a_state(mine, {**dict.fromkeys(EVERYTHING, "pass"), "pool": STATES[number % 4]})
        builders.a_change(mine.nodes.first())
        plan = builders.a_plan(mine, name=f"plan-{number}")
        a_waiver(mine, "1")
        a_waiver(mine, "2", decision="pending")
        an_attestation(mine, expires_at=now + timedelta(days=1))
        an_incident(mine)
        Overdue.objects.create(deployment=mine, plan=plan, since=now - timedelta(hours=1))
        Pause.objects.create(deployment=mine, paused_by="user:ada")
        OwnItem.objects.create(team=team, key=f"X{number}", title="Ours", rule="As we say.")
        a_user(f"member-{number}", team=a_team(f"team-of-{number}"), role="viewer")
        a_user(f"colleague-{number}", team=team, role="viewer")
        a_test_message(team)
        for deployment in (mine, pair):
            a_log(deployment, number)
        a_leak(pair, at=now - timedelta(minutes=number))
        builders.a_run(pair, dict.fromkeys(EVERYTHING, STATES[number % 4]))
        builders.a_change(pair.nodes.first())


def a_log(deployment: Any, number: int) -> None:
    now = timezone.now()
    log = RequestLog.objects.create(
        deployment=deployment, name="requests.csv", sha256="0" * 64, size=1, since=now - timedelta(days=1), until=now,
        imported_by=a_user(), lines=1, requests=1, in_window=1, inside=1,
    )  # fmt: skip
    TenantCount.objects.create(log=log, tenant=f"{number:064x}", requests=1, inside=1)
    RequestHit.objects.create(log=log, line=1, at=now, tokens=700_000, tenant=f"{number:064x}")
    LogImport.objects.create(
        deployment=deployment, name="requests.csv", size=1, since=now - timedelta(days=1), until=now,
        requested_by=a_user(), state="finished", log=log,
    )  # fmt: skip


@pytest.mark.django_db
def test_the_number_of_queries_does_not_grow(people: Any, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for note in ("web.account.session_use.NOTED_EVERY", "accounts.tokens._USE_NOTED_EVERY"):
        # A machine on which the test takes minutes would count the note of another minute.
        monkeypatch.setattr(f"kvaudit.server.{note}", timedelta(days=1))
    user = a_user("everything", role="admin")
    client = Client()
    client.force_login(user)
    _, secret = create_token(owner=user, name="all", scopes=["read"], actor=user)
    given = rows_for(user, people, pair)
    addresses = [reverse(pattern.name, kwargs=given.get(pattern.name, {})) for pattern in PATTERNS]
    addresses += [f"/api/v1/{path}" for path in API]
    addresses += [
        "/history/?verdict=fail&deployment=chat",
        "/compliance/?as_of=2020-01-01",
        "/?engine=sglang",
    ]
    addresses += [f"/d/chat-large/figures/{name}/" for name in ("capacity", "prefill")]

    def asked(address: str) -> int | None:
        """Queries until the last byte; None where the address answers no GET, or leads elsewhere."""
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(address, headers={"Authorization": f"Bearer {secret}"})
            if answer.streaming:
                list(answer.streaming_content)
        assert answer.status_code in (200, 302, 405), address
        return len(queries) if answer.status_code == 200 else None

    grow(people.team, pair, 0, 2)
    SavedView.objects.create(user=user, page="compliance", name="two", query="")
    for address in addresses:
        asked(address)  # what is read once in a process
    few = {address: asked(address) for address in addresses}
    assert sum(count is not None for count in few.values()) > 60, "the addresses lead to pages"
    grow(people.team, pair, 2, 12)
    SavedView.objects.bulk_create(
        SavedView(user=user, page=page, name=f"view {number}")
        for page in ("fleet", "history")
        for number in range(9)
    )
    grown = {each: (few[each], many) for each in addresses if (many := asked(each)) != few[each]}
    # The rows of this scene contradict each other more as it grows; what is doubted is asked a second time, and no more.
    few_of_gate, many_of_gate = grown.pop("/d/chat-large/gate/", (0, 0))
    assert many_of_gate - few_of_gate <= 8
    assert not grown
